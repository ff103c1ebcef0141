//! Executes an arm of a run: a load under one strategy, sampled during it and audited afterwards.
//!
//! The same seed makes the same arrivals under every strategy: the replica of each buyer, and the
//! think times. The results depend on the strategy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::{Instant, interval};
use uuid::Uuid;

use super::faults;
use super::headers::{LabHeaders, TTL_MS, WAIT, WORK_MS};
use super::request::post;
use super::run::{Arm, Bucket, Fault, Journey, Lane, Sample};
use super::stage::{Stage, order_of};
use super::target::{Now, PRICE_CENTS, Target};
use crate::load::script::Asked;
use crate::load::{self, Client, Live, Observation, Plan, Report, Script};

/// Initial sampling interval.
const EVERY: Duration = Duration::from_millis(100);
/// Number of samples at which every second one is dropped and the interval doubles.
const MOST_SAMPLES: usize = 150;
const LONGEST: Duration = Duration::from_secs(60);
/// Upper bound of a buyer's think time before each request, in ms.
const THINK_MS: u64 = 3;
const LANES: usize = 24;
/// Upper bounds of the buckets of the latency histogram, in ms.
const BUCKETS_MS: [f64; 14] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0,
    60_000.0,
];

#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) strategy: String,
    pub(super) journey: Journey,
    pub(super) stock: i64,
    pub(super) buyers: usize,
    pub(super) orders: usize,
    pub(super) work_ms: u64,
    pub(super) ttl_ms: Option<u64>,
    pub(super) wait: Option<String>,
    pub(super) seed: u64,
    pub(super) replicas: usize,
    pub(super) fault: Option<Fault>,
}

impl Spec {
    fn headers(&self) -> LabHeaders {
        let work_ms = Some(self.work_ms).filter(|work_ms| *work_ms > 0);
        let headers = LabHeaders::under(&self.strategy).with_some(WAIT, self.wait.as_ref());
        headers.with_some(WORK_MS, work_ms).with_some(TTL_MS, self.ttl_ms)
    }
}

pub(super) async fn run(stage: &Stage, number: usize, spec: &Spec) -> anyhow::Result<Arm> {
    {
        let mut progress = stage.progress.lock();
        progress.arm = number;
        progress.strategy.clone_from(&spec.strategy);
        progress.samples.clear();
    }
    let (value, clients) = prepare(stage, spec).await?;
    let opening = value.now(stage).await?.stock;
    let live = Arc::new(Live::default());
    let plan = Plan {
        clients,
        warm_up: Duration::ZERO,
        window: None,
        wanted: |status| (200..300).contains(&status),
        observe: true,
        live: Some(Arc::clone(&live)),
    };
    let report = tokio::select! {
        report = crowd(stage, spec, plan) => Some(report?),
        () = watch(stage, &value, opening, &live) => None,
        () = tokio::time::sleep(LONGEST) => None,
    };
    stage.restore().await?;
    let mut arm = value.audit(stage, spec, opening).await?;
    arm.samples = std::mem::take(&mut stage.progress.lock().samples);
    match report {
        Some(report) => {
            figures(&mut arm, &report);
            lanes(stage, number, &arm, &report.observations);
        }
        None => {
            let (name, seconds) = (&spec.strategy, LONGEST.as_secs());
            stage.say(format!("{name} was not over after {seconds} s, and was cut off.")).await;
        }
    }
    stage.show().await;
    Ok(arm)
}

/// Executes the load, and injects the fault during it. If the load ends before the fault is due,
/// the fault is skipped and the steps of the run say so.
async fn crowd(stage: &Stage, spec: &Spec, plan: Plan) -> anyhow::Result<Report> {
    let mut crowd = std::pin::pin!(load::run(plan));
    let Some(fault) = &spec.fault else { return crowd.await.context("the replicas") };
    let at = Duration::from_millis(fault.at_ms);
    tokio::select! {
        report = &mut crowd => {
            let (name, kind) = (&spec.strategy, fault.kind.about());
            let words = format!("{name} was over before anything could go wrong ({kind}).");
            stage.say(words).await;
            report.context("the replicas")
        }
        () = tokio::time::sleep(at) => {
            let fault = faults::inject(&stage.house, fault, spec.replicas);
            let (report, fault) = tokio::join!(crowd, fault);
            fault.context("the fault")?;
            report.context("the replicas")
        }
    }
}

/// Creates the contended item or account, and the clients.
async fn prepare(stage: &Stage, spec: &Spec) -> anyhow::Result<(Target, Vec<Client>)> {
    let replicas = &stage.house.replicas[..spec.replicas];
    let headers = spec.headers();
    let each =
        |buyer: usize| spec.orders / spec.buyers + usize::from(buyer < spec.orders % spec.buyers);
    let client = |buyer: usize, token: &str, posts: Vec<(String, String)>| {
        let mut rng = StdRng::seed_from_u64(spec.seed.wrapping_add(buyer as u64));
        // A buyer uses one replica. The seed chooses between two, with equal probability.
        let target = replicas[(buyer + usize::from(rng.random_bool(0.5))) % replicas.len()];
        let script = Buyer {
            posts: posts.into_iter(),
            token: token.to_owned(),
            headers: headers.clone(),
            rng,
            at: 0,
        };
        Client { target, script: Box::new(script) }
    };
    match spec.journey {
        Journey::Order => {
            let sku = stage.item(spec.stock).await?;
            let post = || ("/api/orders".to_owned(), order_of(&sku));
            let clients = (0..spec.buyers).map(|buyer| {
                let posts = std::iter::repeat_with(post).take(each(buyer)).collect();
                client(buyer, &stage.house.buyers[buyer % stage.house.buyers.len()], posts)
            });
            let clients = clients.collect();
            Ok((Target::Item(sku), clients))
        }
        Journey::Pay => {
            let (user, token) = stage.house.payer().await?;
            let mut orders = purse(stage, &token, spec).await?.into_iter();
            let clients = (0..spec.buyers).map(|buyer| {
                let orders = orders.by_ref().take(each(buyer));
                let posts = orders.map(|id| (format!("/api/orders/{id}/pay"), String::new()));
                client(buyer, &token, posts.collect())
            });
            let clients = clients.collect();
            Ok((Target::Account(user), clients))
        }
    }
}

/// Creates orders to pay; the account of `token` receives money for `spec.stock` of them.
async fn purse(stage: &Stage, token: &str, spec: &Spec) -> anyhow::Result<Vec<Uuid>> {
    let wish = LabHeaders::under("row-lock");
    let money = format!("{{\"amount_cents\":{}}}", (spec.stock * PRICE_CENTS).max(1));
    let rich = stage.post_as(token, "top up", 0, "/api/me/top-ups", &money, &wish).done().await?;
    anyhow::ensure!(rich.is_done(), "no money: {}", rich.body);
    let sku = stage.item(i64::try_from(spec.orders)?).await?;
    let mut orders = Vec::with_capacity(spec.orders);
    for _ in 0..spec.orders {
        let body = order_of(&sku);
        let made = stage.post_as(token, "an order", 0, "/api/orders", &body, &wish).done().await?;
        orders.push(made.order().with_context(|| format!("no order: {}", made.body))?);
    }
    Ok(orders)
}

/// One buyer's requests. The idempotency key of each is its request id too.
#[derive(Debug)]
struct Buyer {
    posts: std::vec::IntoIter<(String, String)>,
    token: String,
    headers: LabHeaders,
    rng: StdRng,
    at: usize,
}

impl Script for Buyer {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Asked> {
        let (path, body) = self.posts.next()?;
        let key = Uuid::now_v7();
        let subject = self.at;
        self.at += 1;
        *request = post(&path, &self.token, &self.headers, key, key, &body);
        Some(Asked { key, subject })
    }

    fn think(&mut self) -> Duration {
        Duration::from_micros(self.rng.random_range(0..THINK_MS * 1_000))
    }
}

/// Samples the arm until the future is dropped.
async fn watch(stage: &Stage, value: &Target, opening: i64, live: &Live) {
    let (mut every, began) = (EVERY, Instant::now());
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        // Without Postgres there is no sample: the curve has a gap.
        let Ok(Now { stock, sold }) = value.now(stage).await else { continue };
        let moment = live.now();
        let sample = Sample {
            t_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            sold,
            stock,
            oversold: (sold - opening).max(0),
            answered: moment.answered,
            waiting: moment.sent - moment.answered,
            p50_ms: moment.p50_ms,
            p99_ms: moment.p99_ms,
        };
        stage.progress.lock().samples.push(sample);
        stage.show().await;
        if thinned(&mut stage.progress.lock().samples) {
            every *= 2;
            ticks = interval(every);
            ticks.tick().await;
        }
    }
}

/// Drops every second sample if there are [`MOST_SAMPLES`]; returns whether it did.
fn thinned(samples: &mut Vec<Sample>) -> bool {
    if samples.len() < MOST_SAMPLES {
        return false;
    }
    let mut keep = false;
    samples.retain(|_| {
        keep = !keep;
        keep
    });
    true
}

fn figures(arm: &mut Arm, report: &Report) {
    arm.orders_per_s = report.per_second();
    arm.wait_p50_ms = report.latency_ms(0.5).unwrap_or(0.0);
    arm.wait_p99_ms = report.latency_ms(0.99).unwrap_or(0.0);
    arm.statuses = report.statuses.iter().map(|(s, n)| (s.to_string(), *n)).collect();
    let mut counted = 0;
    arm.waits = BUCKETS_MS
        .iter()
        .map(|up_to_ms| {
            let so_far = report.latency.count_between(0, (up_to_ms * 1_000.0) as u64);
            let count = so_far - counted;
            counted = so_far;
            Bucket { up_to_ms: *up_to_ms, count }
        })
        .collect();
}

/// Records the lanes of the first forks, or, without forks, those of the first requests.
fn lanes(stage: &Stage, number: usize, arm: &Arm, seen: &[Observation]) {
    let forked: Vec<Uuid> = arm
        .forked
        .iter()
        .flat_map(|fork| fork.entries.iter().map(|entry| entry.request_id))
        .take(LANES)
        .collect();
    let mut chosen: Vec<&Observation> = if forked.is_empty() {
        seen.iter().collect()
    } else {
        seen.iter().filter(|one| forked.contains(&one.key)).collect()
    };
    chosen.sort_by_key(|one| one.invoked_us);
    for one in chosen.into_iter().take(LANES) {
        let answer = one.answer.as_ref();
        let body: Value =
            answer.and_then(|a| serde_json::from_slice(&a.body).ok()).unwrap_or_default();
        let events = stage.traced(&body);
        let replica = body.pointer("/trace/0/replica").and_then(Value::as_str).unwrap_or("?");
        stage.lane(Lane {
            request_id: one.key,
            label: format!("order {}", stage.number()),
            replica: replica.to_owned(),
            arm: Some(number),
            sent_us: stage.since(one.invoked_us),
            answered_us: answer.map(|answer| stage.since(answer.completed_us)),
            status: answer.map(|answer| answer.status),
            events,
        });
    }
}
