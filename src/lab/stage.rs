//! The stage of a lesson: sends requests, holds them at a point, resumes them, and takes notes.
//!
//! Guarantees that nothing is left to luck: [`Stage::until_held`] returns when the request *is* at
//! its point, a signal was sent when its call returns, and everything has an end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::house::House;
pub use super::request::{Answer, Asking, Wish};
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

    /// The house back, and what was noted.
    pub(super) fn strike(self) -> (House, Outcome) {
        let progress = self.progress.into_inner();
        let mut outcome = self.outcome.into_inner();
        outcome.said = progress.said;
        (self.house, outcome)
    }

    pub(super) fn replicas(&self) -> usize {
        self.house.replicas.len()
    }

    /// Which replica a lesson means: they count from the last one on. What happens to a replica
    /// should not happen to the one whose pages the visitor is likely to look at, the first.
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
        self.post_keyed(token, label, replica, path, body, Uuid::now_v7(), wish)
    }

    /// The same with an idempotency key that was, or will be, used again.
    #[expect(clippy::too_many_arguments, reason = "a request, in the order in which it is read")]
    pub fn post_keyed(
        &self,
        token: &str,
        label: &str,
        replica: usize,
        path: &str,
        body: &str,
        key: Uuid,
        wish: &Wish,
    ) -> Asking {
        let id = Uuid::now_v7();
        let request = post(path, token, &wish.headers(), id, key, body);
        let replica = self.replica(replica);
        let target = self.house.replicas[replica];
        let answer = tokio::spawn(async move { load::ask(target, &request).await });
        let outside = Vec::new();
        let label = label.to_owned();
        Asking { id, label, replica, sent_us: monotonic_us(), answer, outside }
    }

    /// Orders one unit.
    pub fn order(&self, label: &str, replica: usize, sku: &Sku, wish: &Wish) -> Asking {
        self.post(label, replica, "/api/orders", &order_of(sku), wish)
    }

    /// Waits for an answer, and notes the request's lane.
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

    /// Waits until the request is held at a point, and says at which.
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

    /// Lets a held request go on whose response is not awaited.
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
        let wish = Wish::under("none");
        let request = post("/api/lab/items", &self.house.admin, &wish.headers(), id, id, &body);
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

    /// Notes that something happened to a request from outside.
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

    /// Kills the replica with that request on it, and waits until it has gone. It is started again;
    /// [`Stage::restore`] waits for that.
    pub async fn kill(&self, mut asking: Asking) -> anyhow::Result<()> {
        self.house.hands.replicas[asking.replica].kill().await;
        self.happened(&mut asking, "killed");
        // Its connection breaks when the process is gone.
        let answer = self.answer(asking).await?;
        ensure!(answer.status.is_none(), "it was answered although its replica was killed");
        Ok(())
    }

    /// Waits until everything is as it was, and tells what had to be done for it.
    pub async fn restore(&self) -> anyhow::Result<()> {
        for words in self.house.restore().await? {
            self.say(words).await;
        }
        Ok(())
    }

    /// Breaks a request's connection: its client has gone, and does not hear the answer.
    pub fn hang_up(&self, mut asking: Asking) {
        asking.answer.abort();
        self.happened(&mut asking, "hung up");
        let lane = self.lane_at(asking.replica, asking.id, asking.label, asking.sent_us);
        self.lane(Lane { events: asking.outside, ..lane });
    }

    /// Asks a replica, by its place in the house, as whoever has that session.
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

    /// The lane of something that was sent to a replica by itself; nothing has happened on it.
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

    /// Since the run began.
    pub(super) fn since(&self, t_us: u64) -> u64 {
        t_us.saturating_sub(self.began_us)
    }

    pub(super) fn number(&self) -> usize {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes down what is to be seen.
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
