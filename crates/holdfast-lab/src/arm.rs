//! Executes an arm of a run: a load under one strategy, sampled during it and audited afterwards.
//! The same seed makes the same arrivals under every strategy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::arm_spec::ArmSpec;
use super::cluster::{ManagedCluster, connect};
use super::lesson_request::Payer;
use super::request::{LabResponse, order_of};
use super::run::{
    ArmResult, FaultKind, ForkedVersion, Journey, Lane, LatencyBucket, RunFault, Sample,
};
use super::scenario::Scenario;
use holdfast_base::messages::message;
use holdfast_services::ProcessHandle;
use holdfast_services::load::{self, LoadClient, LoadPlan, LoadReport, Posts, RequestRecord};
use holdfast_shop::{Sku, UserId};
use holdfast_story::EventKind;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
const ARM_TIMEOUT: Duration = Duration::from_secs(60);
/// Upper bound of a buyer's think time before each request.
const MAX_THINK_TIME: Duration = Duration::from_millis(3);
const PRICE_CENTS: i64 = 100;
const MAX_FORKS: i64 = 12;
const MAX_LANES: usize = 24;
/// Upper bounds of the buckets of the latency histogram, in ms.
const BUCKETS_MS: [f64; 14] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0,
    60_000.0,
];

impl Scenario {
    pub(super) async fn run_arms(&self, specs: &[ArmSpec]) -> anyhow::Result<Vec<ArmResult>> {
        {
            let lanes = self.first_scene();
            let mut progress = self.progress.lock();
            progress.arms = specs.len();
            progress.has_scene = !lanes.is_empty();
            progress.lanes = lanes;
        }
        for (number, spec) in specs.iter().enumerate() {
            let arm = run_arm(self, number, spec).await?;
            self.outcome.lock().arms.push(arm);
        }
        Ok(self.outcome.lock().arms.clone())
    }

    /// Returns the lanes of the scene that was first; none if the run began with a load.
    fn first_scene(&self) -> Vec<Lane> {
        let outcome = self.outcome.lock();
        let first = outcome.lanes.first().filter(|lane| lane.arm.is_none());
        let is_of_it = |lane: &&Lane| first.is_some_and(|first| lane.scene == first.scene);
        outcome.lanes.iter().filter(is_of_it).cloned().collect()
    }
}

async fn run_arm(lab: &Scenario, number: usize, spec: &ArmSpec) -> anyhow::Result<ArmResult> {
    {
        let mut progress = lab.progress.lock();
        progress.arm = number;
        progress.strategy.clone_from(&spec.strategy);
        progress.samples.clear();
    }
    let (value, clients) = prepare(lab, spec).await?;

    let live: Arc<Mutex<LoadReport>> = Arc::default();
    let plan = LoadPlan {
        observe: true,
        live: Some(Arc::clone(&live)),
        ..LoadPlan::new(clients, |status| (200..300).contains(&status))
    };
    let began = Instant::now();
    let report = tokio::select! {
        report = run_load(lab, spec, plan) => Some(report?),
        () = sample(lab, spec, &value, &live) => None,
        () = sleep(ARM_TIMEOUT) => None,
    };
    let took = began.elapsed();
    // The timeout may have cut a fault short, whose process is then still paused.
    lab.restore().await?;

    let samples = std::mem::take(&mut lab.progress.lock().samples);
    let mut arm = ArmResult {
        strategy: spec.strategy.clone(),
        wait: spec.wait.clone(),
        replicas: (spec.replicas < lab.replica_count()).then_some(spec.replicas),
        samples,
        forked: value.forks(lab).await?,
        ..value.measure(lab, spec).await?
    };

    match report {
        Some(report) => {
            record_measurements(&mut arm, &report);
            // A quick load ends before its second sample.
            arm.samples.push(sample_of(&arm, &report, took));
            record_lanes(lab, number, &arm, &report.observations);
        }
        None => {
            let seconds = ARM_TIMEOUT.as_secs();
            lab.say(message!("run-load-step-1", name = &spec.strategy, seconds));
        }
    }
    Ok(arm)
}

/// Executes the load, and injects the fault during it. If the load ends before the fault is due,
/// the fault is skipped and the steps of the run say so.
async fn run_load(lab: &Scenario, spec: &ArmSpec, plan: LoadPlan) -> anyhow::Result<LoadReport> {
    let mut load = std::pin::pin!(load::run(plan));
    let Some(fault) = &spec.fault else { return load.await.context("the replicas") };

    let at = Duration::from_millis(fault.at_ms);
    tokio::select! {
        report = &mut load => {
            let kind = fault.kind.message();
            lab.say(message!("run-load-step-2", name = &spec.strategy, kind));
            report.context("the replicas")
        }
        () = sleep(at) => {
            let fault = inject(&lab.cluster, fault, spec.replicas);
            let (report, fault) = tokio::join!(load, fault);
            fault.context("the fault")?;
            report.context("the replicas")
        }
    }
}

/// Injects a fault, and ends it, as [`ManagedCluster::restore`] does again after every run.
async fn inject(cluster: &ManagedCluster, fault: &RunFault, replicas: usize) -> anyhow::Result<()> {
    let length = Duration::from_millis(fault.for_ms);
    // The last replica, because a visitor's pages are likely to come from the first.
    let replica = cluster.processes.replicas[..replicas].last().context("there is no replica")?;

    match fault.kind {
        FaultKind::PauseReplica => pause(replica, length).await,
        FaultKind::KillReplica => replica.kill().await,
        FaultKind::PauseRedis => pause(&cluster.processes.redis, length).await,
        FaultKind::RestartRedis => cluster.processes.redis.kill().await,
        FaultKind::FlushRedis => {
            redis::cmd("FLUSHALL").exec_async(&mut connect(&cluster.redis_url).await?).await?;
        }
        FaultKind::PauseNode => {
            let node = cluster.processes.nodes.first();
            let node = node.context("this shop has no quorum; start it with --redlock 3")?;
            pause(node, length).await;
        }
    }

    Ok(())
}

async fn pause(process: &ProcessHandle, length: Duration) {
    process.pause().await;
    sleep(length).await;
    process.resume().await;
}

/// Creates the contended value, and the clients of its buyers.
async fn prepare(
    lab: &Scenario,
    spec: &ArmSpec,
) -> anyhow::Result<(ContendedValue, Vec<LoadClient>)> {
    let headers = spec.headers().lines();
    let mut clients = Vec::with_capacity(spec.buyers);

    match spec.journey {
        Journey::Order => {
            let buyers = &lab.cluster.buyers;
            let sku = lab.item_for(&spec.strategy, spec.stock).await?;
            let body = [order_of(&[(&sku, 1)])];

            for buyer in 0..spec.buyers {
                let token = &buyers[buyer % buyers.len()];
                let posts = Posts::new("/api/orders", token, &headers, &body, 0);
                clients.push(client(lab, spec, buyer, posts.limit(spec.orders_of(buyer) as u64)));
            }
            Ok((ContendedValue::Item(sku), clients))
        }
        Journey::Pay => {
            let money = (spec.stock * PRICE_CENTS).max(1);
            let payer = Payer::create(lab, money).await?;
            let sku = lab.item(i64::try_from(spec.orders)?).await?;
            let mut orders = payer.orders(lab, &sku, spec.orders).await?.into_iter();

            for buyer in 0..spec.buyers {
                let orders = orders.by_ref().take(spec.orders_of(buyer));
                let paths: Vec<_> = orders.map(|id| format!("/api/orders/{id}/pay")).collect();
                let posts = Posts::to_paths(&paths, &payer.token, &headers);
                clients.push(client(lab, spec, buyer, posts));
            }
            Ok((ContendedValue::Account(payer.account), clients))
        }
    }
}

/// Creates the client of a buyer, who uses one replica. The seed chooses between two, with equal
/// probability.
fn client(lab: &Scenario, spec: &ArmSpec, buyer: usize, script: Posts) -> LoadClient {
    let replicas = &lab.cluster.replicas[..spec.replicas];
    let mut rng = StdRng::seed_from_u64(spec.seed.wrapping_add(buyer as u64));
    let target = replicas[(buyer + usize::from(rng.random_bool(0.5))) % replicas.len()];
    let script = script.with_think_time(rng, MAX_THINK_TIME).with_request_id();
    LoadClient { targets: vec![target], script }
}

/// Samples the arm until the future is dropped; less often as it grows longer.
async fn sample(lab: &Scenario, spec: &ArmSpec, value: &ContendedValue, live: &Mutex<LoadReport>) {
    let began = Instant::now();

    loop {
        // Without Postgres there is no sample: the curve has a gap.
        if let Ok(arm) = value.measure(lab, spec).await {
            let live = live.lock();
            lab.progress.lock().samples.push(sample_of(&arm, &live, began.elapsed()));
        }

        sleep(SAMPLE_INTERVAL.max(began.elapsed() / 40)).await;
    }
}

fn sample_of(arm: &ArmResult, load: &LoadReport, at: Duration) -> Sample {
    Sample {
        t_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        sold: arm.sold,
        stock: arm.stock,
        oversold: arm.oversold,
        answered: load.completed(),
        waiting: load.sent - load.completed(),
        p50_ms: load.latency_ms(0.5).unwrap_or(0.0),
        p99_ms: load.latency_ms(0.99).unwrap_or(0.0),
    }
}

fn record_measurements(arm: &mut ArmResult, report: &LoadReport) {
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
            LatencyBucket { up_to_ms: *up_to_ms, count }
        })
        .collect();
}

/// Records the lanes of the first forks; without forks, of the requests that got on first, so that
/// no other request had the lock between two of them.
fn record_lanes(lab: &Scenario, number: usize, arm: &ArmResult, requests: &[RequestRecord]) {
    let forked: Vec<Uuid> = arm
        .forked
        .iter()
        .flat_map(|fork| fork.entries.iter().map(|entry| entry.request_id))
        .take(MAX_LANES)
        .collect();
    let mut requests: Vec<&RequestRecord> = requests
        .iter()
        .filter(|request| forked.is_empty() || forked.contains(&request.key))
        .collect();
    requests.sort_by_cached_key(|request| began_us(request));

    // The orders are numbered across the arms.
    let earlier = lab.outcome.lock().lanes.iter().filter(|lane| lane.arm.is_some()).count();
    for (at, request) in requests.into_iter().take(MAX_LANES).enumerate() {
        let label = message!("run-label-order", number = earlier + at + 1);
        let mut lane = Lane::new(request.key, label, "?", request.invoked_us);
        if let Some(response) = &request.response {
            let body = LabResponse::new(Some((response.status, response.body.clone())));
            lane = lane.answered(&body, response.completed_us);
        }
        lab.record_lane(Lane { arm: Some(number), ..lane });
    }
}

/// Returns when a request began to work: when it had the lock or had read, or was turned away.
fn began_us(request: &RequestRecord) -> u64 {
    let Some(response) = &request.response else { return request.invoked_us };
    let body = LabResponse::new(Some((response.status, response.body.clone())));
    let began = body
        .trace()
        .into_iter()
        .find(|event| matches!(event.kind, EventKind::Held | EventKind::Read));
    began.map_or(response.completed_us, |event| event.at_us)
}

/// The contended value of an arm: an item's stock, or an account's balance.
#[derive(Debug, Clone)]
enum ContendedValue {
    Item(Sku),
    Account(UserId),
}

/// Reads the forks of one key of a ledger.
macro_rules! forks {
    ($lab:expr, $ledger:literal, $key:expr) => {{
        let rows = sqlx::query!(
            r#"select version, min(before) as "before!",
                      jsonb_agg(to_jsonb(l) order by seq) as "entries!" from "#
                + $ledger
                + " = $1 group by version having count(*) > 1 order by version limit $2",
            $key,
            MAX_FORKS,
        );
        let rows = rows.fetch_all(&mut *$lab.connection().await?).await?;
        rows.into_iter().map(|row| fork(row.version, row.before, row.entries)).collect()
    }};
}

impl ContendedValue {
    /// Measures it by its ledger, during the load and after it.
    async fn measure(&self, lab: &Scenario, spec: &ArmSpec) -> anyhow::Result<ArmResult> {
        let orders = i64::try_from(spec.orders)?;
        match self {
            ContendedValue::Item(sku) => Ok(ArmResult::of_item(&lab.audit(sku).await?, orders)),
            ContendedValue::Account(user) => audit_account(lab, *user, orders * PRICE_CENTS).await,
        }
    }

    /// Returns the first forks, with the requests that caused them.
    async fn forks(&self, lab: &Scenario) -> anyhow::Result<Vec<ForkedVersion>> {
        match self {
            ContendedValue::Item(sku) => {
                forks!(lab, "stock_ledger l where sku", sku.as_str())
            }
            ContendedValue::Account(user) => {
                forks!(lab, "balance_ledger l where user_id", user.0)
            }
        }
    }
}

async fn audit_account(lab: &Scenario, user: UserId, price: i64) -> anyhow::Result<ArmResult> {
    let row = sqlx::query!(
        r#"with chain as (
               select before, delta, reason,
                      lag(after, 1, 0) over chain as previous,
                      sum(delta) over chain as running
                 from balance_ledger where user_id = $1
               window chain as (order by version, seq)
           )
           select (select balance_cents from accounts where user_id = $1) as "balance!",
                  coalesce(sum(delta), 0)::bigint as "total!",
                  coalesce(-sum(delta) filter (where reason = 'payment'), 0)::bigint as "paid!",
                  coalesce(greatest(0, -min(running)), 0)::bigint as "overspent!",
                  count(*) filter (where before <> previous) as "breaks!",
                  (select count(*) from (select from balance_ledger where user_id = $1
                                          group by version having count(*) > 1) f) as "forks!"
             from chain"#,
        user.0,
    )
    .fetch_one(&mut *lab.connection().await?)
    .await?;

    let drift = row.balance - row.total;
    let opening = row.total + row.paid;
    Ok(ArmResult {
        stock_opening: opening,
        undersold: (opening.min(price) - row.paid).max(0),
        sold: row.paid,
        stock: row.balance,
        oversold: row.overspent,
        drift,
        breaks: row.breaks,
        forks: row.forks,
        ok: drift == 0 && row.breaks == 0,
        ..ArmResult::default()
    })
}

fn fork(version: i64, before: i64, entries: Value) -> anyhow::Result<ForkedVersion> {
    Ok(ForkedVersion { version, before, entries: serde_json::from_value(entries)? })
}
