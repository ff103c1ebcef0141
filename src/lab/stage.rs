//! What a lesson is played on: single requests that are sent, held at a point, let go and awaited,
//! and what is noted of them.
//!
//! Guarantees that nothing is left to luck: [`Stage::until_held`] returns when the request *is* at
//! its point, a signal was sent when its call returns, and everything has an end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::house::House;
use super::run::{Fact, Lane, LaneEvent, Outcome, Progress, Wanted};
use super::store;
use crate::clock::monotonic_us;
use crate::load;
use crate::shop::Sku;
use crate::shop::audit::{self, ItemAudit};

/// No request takes longer.
const PATIENCE: Duration = Duration::from_secs(12);
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// What a run is carried out on.
#[derive(Debug)]
pub struct Stage {
    pub(super) house: House,
    run: Uuid,
    pub(super) wanted: Wanted,
    progress: Mutex<Progress>,
    outcome: Mutex<Outcome>,
    began_us: u64,
    requests: AtomicUsize,
}

/// What a request wishes for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// The strategy.
    pub lock: &'static str,
    /// `try`, `retry` or `notify`.
    pub wait: Option<&'static str>,
    /// Extra work between read and write.
    pub work_ms: u64,
    /// The lease.
    pub ttl_ms: Option<u64>,
    /// Where it is held: a point's name, or `every`.
    pub pause: Option<&'static str>,
}

impl Wish {
    /// Nothing but a strategy.
    #[must_use]
    pub fn under(lock: &'static str) -> Self {
        Self { lock, ..Self::default() }
    }

    /// As lines of a request's head.
    fn headers(&self) -> Vec<String> {
        let mut lines = vec![format!("Holdfast-Lock: {}", self.lock), "Holdfast-Trace: on".into()];
        if let Some(wait) = self.wait {
            lines.push(format!("Holdfast-Wait: {wait}"));
        }
        if self.work_ms > 0 {
            lines.push(format!("Holdfast-Work-Ms: {}", self.work_ms));
        }
        if let Some(ttl) = self.ttl_ms {
            lines.push(format!("Holdfast-Ttl-Ms: {ttl}"));
        }
        if let Some(pause) = self.pause {
            lines.push(format!("Holdfast-Pause: {pause}"));
        }
        lines
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Asking {
    /// Which.
    pub id: Uuid,
    label: String,
    replica: usize,
    sent_us: u64,
    answer: JoinHandle<std::io::Result<(u16, Vec<u8>)>>,
    outside: Vec<LaneEvent>,
}

impl Asking {
    /// What came of it, for a request that nobody looks at.
    ///
    /// # Errors
    /// When it was not answered.
    pub(super) async fn done(self) -> anyhow::Result<Answer> {
        let (status, body) = tokio::time::timeout(PATIENCE, self.answer).await???;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer { status: Some(status), body })
    }
}

/// What came of a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status; none when its connection broke.
    pub status: Option<u16>,
    /// Its body, as JSON.
    pub body: Value,
}

impl Answer {
    /// Whether the order was placed, or paid.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.status, Some(200 | 201))
    }

    /// What the item's stock was before this order, by its own entry.
    #[must_use]
    pub fn before(&self) -> Option<i64> {
        self.body.pointer("/lines/0/stock/before").and_then(Value::as_i64)
    }

    /// The order's id.
    #[must_use]
    pub fn order(&self) -> Option<Uuid> {
        self.body.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok())
    }

    /// The problem's name, if it is one: `sold-out`.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        let name = self.body.get("type").and_then(Value::as_str)?;
        name.rsplit('/').next()
    }
}

/// One line of a trace, as the API gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Traced {
    pub(super) t_us: u64,
    pub(super) event: String,
    pub(super) key: String,
    pub(super) value: Option<i64>,
    pub(super) fence: Option<i64>,
}

impl Stage {
    pub(super) fn new(house: House, run: Uuid, wanted: Wanted) -> Self {
        Self {
            house,
            run,
            wanted,
            progress: Mutex::default(),
            outcome: Mutex::default(),
            began_us: monotonic_us(),
            requests: AtomicUsize::new(0),
        }
    }

    /// The house back, and what was noted.
    pub(super) fn strike(self) -> (House, Outcome) {
        let progress = self.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = self.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.said = progress.said;
        (self.house, outcome)
    }

    /// How many replicas there are.
    pub(super) fn replicas(&self) -> usize {
        self.house.replicas.len()
    }

    /// Tells the visitor what is being done.
    pub async fn say(&self, words: impl Into<String>) {
        self.progress().said.push(words.into());
        self.show().await;
    }

    /// Notes a figure.
    pub fn fact(&self, name: &str, value: impl std::fmt::Display) {
        let fact = Fact { name: name.to_owned(), value: value.to_string() };
        self.outcome().facts.push(fact);
    }

    /// Sends a `POST` by the lab's first buyer, and goes on at once.
    pub fn post(&self, label: &str, replica: usize, path: &str, body: &str, wish: &Wish) -> Asking {
        self.post_as(&self.house.buyers[0], label, replica, path, body, wish)
    }

    /// The same by whoever has that session.
    pub fn post_as(
        &self,
        token: &str,
        label: &str,
        replica: usize,
        path: &str,
        body: &str,
        wish: &Wish,
    ) -> Asking {
        let id = Uuid::now_v7();
        let request = self.request(token, path, body, id, id, wish);
        // From the last one on: what happens to a replica should not happen to the one whose pages
        // the visitor is likely to look at, which is the first.
        let last = self.house.replicas.len() - 1;
        let replica = last - replica % self.house.replicas.len();
        let target = self.house.replicas[replica];
        let answer = tokio::spawn(async move { load::ask(target, &request).await });
        let outside = Vec::new();
        let label = label.to_owned();
        Asking { id, label, replica, sent_us: monotonic_us(), answer, outside }
    }

    pub(super) fn request(
        &self,
        token: &str,
        path: &str,
        body: &str,
        id: Uuid,
        key: Uuid,
        wish: &Wish,
    ) -> Vec<u8> {
        let headers: String = wish.headers().iter().map(|line| format!("{line}\r\n")).collect();
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\n{headers}X-Request-Id: {id}\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Orders one unit.
    pub fn order(&self, label: &str, replica: usize, sku: &Sku, wish: &Wish) -> Asking {
        self.post(label, replica, "/api/orders", &order_of(sku), wish)
    }

    /// Waits for an answer, and notes the request's lane.
    ///
    /// # Errors
    /// When there is no answer within the time that any request gets.
    pub async fn answer(&self, asking: Asking) -> anyhow::Result<Answer> {
        let joined = tokio::time::timeout(PATIENCE, asking.answer).await;
        let joined = joined.with_context(|| format!("{} was not answered", asking.label))?;
        let answered_us = monotonic_us();
        let (status, body) = match joined? {
            Ok((status, body)) => (Some(status), serde_json::from_slice(&body).unwrap_or_default()),
            Err(_) => (None, Value::Null),
        };
        let mut events = self.traced(&body);
        events.extend(asking.outside);
        events.sort_by_key(|event| event.t_us);
        self.lane(Lane {
            request_id: asking.id,
            label: asking.label,
            replica: self.house.replicas[asking.replica].port().to_string(),
            arm: None,
            sent_us: self.since(asking.sent_us),
            answered_us: status.map(|_| self.since(answered_us)),
            status,
            events,
        });
        Ok(Answer { status, body })
    }

    /// Waits until the request is held at a point, and says at which.
    ///
    /// # Errors
    /// When it is answered instead, or gets nowhere.
    pub async fn until_held(&self, asking: &Asking) -> anyhow::Result<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let (status, body) = self.ask(asking.replica, "GET", "/api/lab/holds").await?;
            if status != 200 {
                bail!("a replica does not say who is held: {status}");
            }
            let held: Vec<HeldThere> = serde_json::from_slice(&body)?;
            if let Some(held) = held.iter().find(|held| held.request_id == asking.id) {
                return Ok(held.point.clone());
            }
            if asking.answer.is_finished() {
                bail!("{} was answered before it came to its point", asking.label);
            }
            if Instant::now() > end {
                bail!("{} did not come to its point", asking.label);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Lets a held request go on.
    ///
    /// # Errors
    /// When it is not held.
    pub async fn let_go(&self, asking: &Asking) -> anyhow::Result<()> {
        let path = format!("/api/lab/holds/{}", asking.id);
        match self.ask(asking.replica, "POST", &path).await? {
            (204, _) => Ok(()),
            (status, _) => bail!("{} could not be let go: {status}", asking.label),
        }
    }

    /// A throw-away item.
    ///
    /// # Errors
    /// When it can't be made.
    pub async fn item(&self, stock: i64) -> anyhow::Result<Sku> {
        let body = format!("{{\"stock\":{stock}}}");
        let id = Uuid::now_v7();
        let wish = Wish::under("none");
        let request = self.request(&self.house.admin, "/api/lab/items", &body, id, id, &wish);
        let (status, body) = load::ask(self.house.replicas[0], &request).await?;
        let made: Value = serde_json::from_slice(&body)?;
        let sku = made.get("sku").and_then(Value::as_str).map(ToOwned::to_owned);
        let sku = sku.with_context(|| format!("no item was made: {status} {made}"))?;
        Sku::try_from(sku).map_err(|error| anyhow::anyhow!(error))
    }

    /// What the ledger says of an item.
    ///
    /// # Errors
    /// Postgres's.
    pub async fn audit(&self, sku: &Sku) -> anyhow::Result<ItemAudit> {
        audit::of_item(&self.house.pool, sku).await?.context("the item has gone")
    }

    /// Notes that something happened to a request from outside.
    pub(super) fn happened(&self, asking: &mut Asking, event: &str) {
        let (t_us, event, key) = (self.since(monotonic_us()), event.to_owned(), String::new());
        asking.outside.push(LaneEvent { t_us, event, key, value: None, fence: None });
    }

    /// Stops a replica, with that request on it.
    pub async fn pause(&self, asking: &mut Asking) {
        self.house.hands.replicas[asking.replica].pause().await;
        self.happened(asking, "paused");
    }

    /// Lets it go on.
    pub async fn resume(&self, asking: &mut Asking) {
        self.happened(asking, "resumed");
        self.house.hands.replicas[asking.replica].resume().await;
    }

    /// Kills the replica with that request on it, and waits until it is back.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn kill(&self, asking: &mut Asking) -> anyhow::Result<()> {
        self.house.hands.replicas[asking.replica].kill().await;
        self.happened(asking, "killed");
        self.restore().await
    }

    /// Waits until everything is as it was, and tells what had to be done for it.
    pub(super) async fn restore(&self) -> anyhow::Result<()> {
        for words in self.house.restore().await? {
            self.say(words).await;
        }
        Ok(())
    }

    async fn ask(
        &self,
        replica: usize,
        method: &str,
        path: &str,
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let token = &self.house.admin;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        load::ask(self.house.replicas[replica], request.as_bytes()).await
    }

    /// What the trace in an answer says.
    pub(super) fn traced(&self, body: &Value) -> Vec<LaneEvent> {
        let trace = body.get("trace").cloned().unwrap_or_default();
        let trace: Vec<Traced> = serde_json::from_value(trace).unwrap_or_default();
        let event = |traced: Traced| {
            let Traced { t_us, event, key, value, fence } = traced;
            LaneEvent { t_us: self.since(t_us), event, key, value, fence }
        };
        trace.into_iter().map(event).collect()
    }

    pub(super) fn lane(&self, lane: Lane) {
        self.outcome().lanes.push(lane);
    }

    /// Since the run began.
    pub(super) fn since(&self, t_us: u64) -> u64 {
        t_us.saturating_sub(self.began_us)
    }

    /// The next number of a request.
    pub(super) fn number(&self) -> usize {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what is to be seen.
    pub(super) async fn show(&self) {
        let progress = self.progress().clone();
        if let Err(error) = store::show(&self.house.pool, self.run, &progress).await {
            tracing::warn!(%error, "a run's progress can't be shown");
        }
    }
}

/// Who is held, as the API says it.
#[derive(Debug, Deserialize)]
struct HeldThere {
    request_id: Uuid,
    point: String,
}

/// One unit of that item.
pub(super) fn order_of(sku: &Sku) -> String {
    format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":1}}]}}")
}
