//! Drives a lesson: sends requests, holds and resumes them at probe points, records the result.
//!
//! Guarantees a deterministic order: [`Stage::until_held`] returns when the request *is* held at
//! its point, and [`Stage::pause`] when the signal is sent. Every wait has a timeout.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::headers::LabHeaders;
use super::house::House;
pub use super::request::{Answer, Asking};
use super::request::{PATIENCE, Traced, post};
use super::run::{Fact, Lane, LaneEvent, Outcome, Progress, Wanted};
use super::store;
use crate::clock::monotonic_us;
use crate::load;
use crate::shop::Sku;
use crate::shop::audit::{self, ItemAudit};

const LOOK_EVERY: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub struct Stage {
    pub(super) house: House,
    run: Uuid,
    pub(super) wanted: Wanted,
    pub(super) progress: Mutex<Progress>,
    pub(super) outcome: Mutex<Outcome>,
    began_us: u64,
    requests: AtomicUsize,
    items: Mutex<Vec<Sku>>,
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
            items: Mutex::default(),
        }
    }

    /// Returns the cluster and the recorded outcome.
    pub(super) fn strike(self) -> (House, Outcome) {
        let progress = self.progress.into_inner();
        let mut outcome = self.outcome.into_inner();
        outcome.said = progress.said;
        (self.house, outcome)
    }

    pub(super) fn replicas(&self) -> usize {
        self.house.replicas.len()
    }

    /// Returns the index of a lesson's replica. Lessons count from the last one, so that faults
    /// spare the first, whose pages the visitor is likely to look at.
    pub(super) fn replica(&self, replica: usize) -> usize {
        let replicas = self.house.replicas.len();
        replicas - 1 - replica % replicas
    }

    pub async fn say(&self, words: impl Into<String>) {
        self.progress.lock().said.push(words.into());
        self.show().await;
    }

    pub fn fact(&self, name: &str, value: impl std::fmt::Display) {
        let fact = Fact { name: name.to_owned(), value: value.to_string() };
        self.outcome.lock().facts.push(fact);
    }

    /// Sends a `POST` as the lab's first buyer, without waiting for the response.
    pub fn post(
        &self,
        label: &str,
        replica: usize,
        path: &str,
        body: &str,
        wish: &LabHeaders,
    ) -> Asking {
        self.post_as(&self.house.buyers[0], label, replica, path, body, wish)
    }

    /// Sends a `POST` with the session `token`.
    pub fn post_as(
        &self,
        token: &str,
        label: &str,
        replica: usize,
        path: &str,
        body: &str,
        wish: &LabHeaders,
    ) -> Asking {
        self.post_keyed(token, label, replica, path, body, Uuid::now_v7(), wish)
    }

    /// Sends a `POST` with an idempotency key that other requests of the lesson use too.
    #[expect(clippy::too_many_arguments, reason = "a request, in the order in which it is read")]
    pub fn post_keyed(
        &self,
        token: &str,
        label: &str,
        replica: usize,
        path: &str,
        body: &str,
        key: Uuid,
        wish: &LabHeaders,
    ) -> Asking {
        let id = Uuid::now_v7();
        let request = post(path, token, &wish, id, key, body);
        let replica = self.replica(replica);
        let target = self.house.replicas[replica];
        let answer = tokio::spawn(async move { load::ask(target, &request).await });
        let outside = Vec::new();
        let label = label.to_owned();
        Asking { id, label, replica, sent_us: monotonic_us(), answer, outside }
    }

    /// Sends an order for one unit.
    pub fn order(&self, label: &str, replica: usize, sku: &Sku, wish: &LabHeaders) -> Asking {
        self.post(label, replica, "/api/orders", &order_of(sku), wish)
    }

    /// Waits for the response, and records the request's lane.
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
        let answered_us = status.map(|_| self.since(answered_us));
        let lane = self.lane_at(asking.replica, asking.id, asking.label, asking.sent_us);
        self.lane(Lane { answered_us, status, events, ..lane });
        Ok(Answer { status, body })
    }

    /// Waits until the request is held at a probe point, and returns the point's name.
    ///
    /// # Errors
    /// If the request is answered before, or is not held within 12 s.
    pub async fn until_held(&self, asking: &Asking) -> anyhow::Result<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let held = self.held(asking.replica).await?;
            if let Some(held) = held.into_iter().find(|held| held.request_id == asking.id) {
                return Ok(held.point);
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

    pub(super) async fn held(&self, replica: usize) -> anyhow::Result<Vec<HeldThere>> {
        let (status, body) = self.ask(&self.house.admin, replica, "GET", "/api/lab/holds").await?;
        if status != 200 {
            bail!("a replica does not say who is held: {status}");
        }
        Ok(serde_json::from_slice(&body)?)
    }

    pub async fn let_go(&self, asking: &Asking) -> anyhow::Result<()> {
        let let_go = self.let_go_at(asking.replica, asking.id).await;
        let_go.with_context(|| asking.label.clone())
    }

    /// Resumes a held request whose response the lesson does not await.
    pub async fn let_go_at(&self, replica: usize, request_id: Uuid) -> anyhow::Result<()> {
        let path = format!("/api/lab/holds/{request_id}");
        match self.ask(&self.house.admin, replica, "POST", &path).await? {
            (204, _) => Ok(()),
            (status, _) => bail!("it could not be let go: {status}"),
        }
    }

    pub async fn item(&self, stock: i64) -> anyhow::Result<Sku> {
        let body = format!("{{\"stock\":{stock}}}");
        let id = Uuid::now_v7();
        let wish = LabHeaders::under("none");
        let request = post("/api/lab/items", &self.house.admin, &wish, id, id, &body);
        let (status, body) = load::ask(self.house.replicas[0], &request).await?;
        let made: Value = serde_json::from_slice(&body)?;
        let sku = made.get("sku").and_then(Value::as_str).map(ToOwned::to_owned);
        let sku = sku.with_context(|| format!("no item was made: {status} {made}"))?;
        let sku = Sku::try_from(sku).map_err(|error| anyhow::anyhow!(error))?;
        self.items.lock().push(sku.clone());
        Ok(sku)
    }

    pub(super) fn items(&self) -> Vec<Sku> {
        self.items.lock().clone()
    }

    pub async fn audit(&self, sku: &Sku) -> anyhow::Result<ItemAudit> {
        audit::of_item(&self.house.pool, sku).await?.context("the item has gone")
    }

    /// Records an external event of a request.
    pub(super) fn happened(&self, asking: &mut Asking, event: &str) {
        let (t_us, event, key) = (self.since(monotonic_us()), event.to_owned(), String::new());
        asking.outside.push(LaneEvent { t_us, event, key, value: None, fence: None });
    }

    pub async fn pause(&self, asking: &mut Asking) {
        self.house.hands.replicas[asking.replica].pause().await;
        self.happened(asking, "paused");
    }

    pub async fn resume(&self, asking: &mut Asking) {
        self.happened(asking, "resumed");
        self.house.hands.replicas[asking.replica].resume().await;
    }

    /// Kills the replica that executes the request, and waits until the connection breaks. The
    /// supervisor restarts the replica; [`Stage::restore`] waits for that.
    pub async fn kill(&self, mut asking: Asking) -> anyhow::Result<()> {
        self.house.hands.replicas[asking.replica].kill().await;
        self.happened(&mut asking, "killed");
        // The connection breaks when the process ends.
        let answer = self.answer(asking).await?;
        ensure!(answer.status.is_none(), "it was answered although its replica was killed");
        Ok(())
    }

    /// Waits until every process responds again, and records which ones had to be restarted.
    pub async fn restore(&self) -> anyhow::Result<()> {
        for words in self.house.restore().await? {
            self.say(words).await;
        }
        Ok(())
    }

    /// Closes a request's connection before the response, as a client that disconnects does.
    pub fn hang_up(&self, mut asking: Asking) {
        asking.answer.abort();
        self.happened(&mut asking, "hung up");
        let lane = self.lane_at(asking.replica, asking.id, asking.label, asking.sent_us);
        self.lane(Lane { events: asking.outside, ..lane });
    }

    /// Sends a request without a body to `house.replicas[replica]`, with the session `token`.
    pub(super) async fn ask(
        &self,
        token: &str,
        replica: usize,
        method: &str,
        path: &str,
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        load::ask(self.house.replicas[replica], request.as_bytes()).await
    }

    pub(super) fn traced(&self, body: &Value) -> Vec<LaneEvent> {
        let trace = body.get("trace").cloned().unwrap_or_default();
        let trace: Vec<Traced> = serde_json::from_value(trace).unwrap_or_default();
        let event = |traced: Traced| {
            let Traced { t_us, event, key, value, fence } = traced;
            LaneEvent { t_us: self.since(t_us), event, key, value, fence }
        };
        trace.into_iter().map(event).collect()
    }

    /// Returns a lane without events, for a request that was sent individually.
    pub(super) fn lane_at(&self, replica: usize, id: Uuid, label: String, sent_us: u64) -> Lane {
        Lane {
            request_id: id,
            label,
            replica: self.house.replicas[replica].port().to_string(),
            arm: None,
            sent_us: self.since(sent_us),
            answered_us: None,
            status: None,
            events: Vec::new(),
        }
    }

    pub(super) fn lane(&self, lane: Lane) {
        self.outcome.lock().lanes.push(lane);
    }

    /// Converts monotonic time to the time since the run began, both in µs.
    pub(super) fn since(&self, t_us: u64) -> u64 {
        t_us.saturating_sub(self.began_us)
    }

    pub(super) fn number(&self) -> usize {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes the progress to Postgres, where every replica reads it.
    pub(super) async fn show(&self) {
        let progress = self.progress.lock().clone();
        if let Err(error) = store::show(&self.house.pool, self.run, &progress).await {
            tracing::warn!(%error, "a run's progress can't be shown");
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct HeldThere {
    pub(super) request_id: Uuid,
    pub(super) point: String,
    pub(super) since_us: u64,
}

pub(super) fn order_of(sku: &Sku) -> String {
    format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":1}}]}}")
}
