//! Drives a lesson: sends requests, holds and resumes them at probe points, records the result.
//!
//! Guarantees a deterministic order: [`Scenario::wait_until_held`] returns when the request *is*
//! held at its point, [`Scenario::pause_replica`] when the signal is sent. Every wait is bounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use holdfast_lock::clock::monotonic_us;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::cluster::ManagedCluster;
use super::headers::{LabHeaders, under};
pub use super::request::{InFlightRequest, LabResponse};
use super::request::{RESPONSE_TIMEOUT, TraceRecord, post};
use super::run::{Fact, Lane, LaneEvent, RunProgress, RunRequest, RunResult};
use super::store;
use crate::load;
use crate::shop::Sku;
use crate::shop::audit::{self, ItemAudit};

const POLL_INTERVAL: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub struct Scenario {
    pub(super) cluster: ManagedCluster,
    run: Uuid,
    pub(super) request: RunRequest,
    pub(super) progress: Mutex<RunProgress>,
    pub(super) outcome: Mutex<RunResult>,
    began_us: u64,
    requests: AtomicUsize,
    items: Mutex<Vec<Sku>>,
}

impl Scenario {
    pub(super) fn new(cluster: ManagedCluster, run: Uuid, request: RunRequest) -> Self {
        Self {
            cluster,
            run,
            request,
            progress: Mutex::default(),
            outcome: Mutex::default(),
            began_us: monotonic_us(),
            requests: AtomicUsize::new(0),
            items: Mutex::default(),
        }
    }

    /// Returns the cluster and the recorded outcome.
    pub(super) fn into_parts(self) -> (ManagedCluster, RunResult) {
        let progress = self.progress.into_inner();
        let mut outcome = self.outcome.into_inner();
        outcome.said = progress.said;
        (self.cluster, outcome)
    }

    pub(super) fn replica_count(&self) -> usize {
        self.cluster.replicas.len()
    }

    /// Returns the index of a lesson's replica. Lessons count from the last one, so that faults
    /// spare the first, whose pages the visitor is likely to look at.
    pub(super) fn replica_index(&self, replica: usize) -> usize {
        let replicas = self.cluster.replicas.len();
        replicas - 1 - replica % replicas
    }

    pub(super) async fn connection(&self) -> anyhow::Result<PoolConnection<Postgres>> {
        Ok(self.cluster.pool.acquire().await.map_err(|(_, error)| error)?)
    }

    pub async fn say(&self, words: impl Into<String>) {
        self.progress.lock().said.push(words.into());
        self.save_progress().await;
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
        headers: &LabHeaders,
    ) -> InFlightRequest {
        self.post_as(&self.cluster.buyers[0], label, replica, path, body, headers)
    }

    /// Sends a `POST` with the session `token`.
    pub fn post_as(
        &self,
        token: &str,
        label: &str,
        replica: usize,
        path: &str,
        body: &str,
        headers: &LabHeaders,
    ) -> InFlightRequest {
        self.post_keyed(token, label, replica, path, body, Uuid::now_v7(), headers)
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
        headers: &LabHeaders,
    ) -> InFlightRequest {
        let id = Uuid::now_v7();
        let request = post(path, token, headers, id, key, body);
        let replica = self.replica_index(replica);
        let target = self.cluster.replicas[replica];
        let response = tokio::spawn(async move { load::send(target, &request).await });
        let external = Vec::new();
        let label = label.to_owned();
        InFlightRequest { id, label, replica, sent_us: monotonic_us(), response, external }
    }

    /// Sends an order for one unit.
    pub fn order(
        &self,
        label: &str,
        replica: usize,
        sku: &Sku,
        headers: &LabHeaders,
    ) -> InFlightRequest {
        self.post(label, replica, "/api/orders", &order_of(sku), headers)
    }

    /// Waits for the response, and records the request's lane.
    pub async fn response(&self, request: InFlightRequest) -> anyhow::Result<LabResponse> {
        let joined = tokio::time::timeout(RESPONSE_TIMEOUT, request.response).await;
        let joined = joined.with_context(|| format!("{} was not answered", request.label))?;
        let answered_us = monotonic_us();
        let (status, body) = match joined? {
            Ok((status, body)) => (Some(status), serde_json::from_slice(&body).unwrap_or_default()),
            Err(_) => (None, Value::Null),
        };
        let mut events = self.trace_events(&body);
        events.extend(request.external);
        events.sort_by_key(|event| event.t_us);
        let answered_us = status.map(|_| self.since_start_us(answered_us));
        let lane = self.new_lane(request.replica, request.id, request.label, request.sent_us);
        self.record_lane(Lane { answered_us, status, events, ..lane });
        Ok(LabResponse { status, body })
    }

    /// Waits until the request is held at a probe point, and returns the point's name.
    ///
    /// # Errors
    /// If the request is answered before, or is not held within 12 s.
    pub async fn wait_until_held(&self, request: &InFlightRequest) -> anyhow::Result<String> {
        let end = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            let held = self.held_requests(request.replica).await?;
            if let Some(held) = held.into_iter().find(|held| held.request_id == request.id) {
                return Ok(held.point);
            }
            if request.response.is_finished() {
                bail!("{} was answered before it came to its point", request.label);
            }
            if Instant::now() > end {
                bail!("{} did not come to its point", request.label);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    pub(super) async fn held_requests(&self, replica: usize) -> anyhow::Result<Vec<HoldInfo>> {
        let (status, body) =
            self.send(&self.cluster.admin, replica, "GET", "/api/lab/paused").await?;
        if status != 200 {
            bail!("a replica does not say who is held: {status}");
        }
        Ok(serde_json::from_slice(&body)?)
    }

    pub async fn resume_request(&self, request: &InFlightRequest) -> anyhow::Result<()> {
        let resumed = self.resume_by_id(request.replica, request.id).await;
        resumed.with_context(|| request.label.clone())
    }

    /// Resumes a held request whose response the lesson does not await.
    pub async fn resume_by_id(&self, replica: usize, request_id: Uuid) -> anyhow::Result<()> {
        let path = format!("/api/lab/paused/{request_id}");
        match self.send(&self.cluster.admin, replica, "POST", &path).await? {
            (204, _) => Ok(()),
            (status, _) => bail!("it could not be let go: {status}"),
        }
    }

    pub async fn item(&self, stock: i64) -> anyhow::Result<Sku> {
        let body = format!("{{\"stock\":{stock}}}");
        let id = Uuid::now_v7();
        let headers = under("none");
        let request = post("/api/lab/items", &self.cluster.admin, &headers, id, id, &body);
        let (status, body) = load::send(self.cluster.replicas[0], &request).await?;
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
        audit::check_item(&self.cluster.pool, sku).await?.context("the item has gone")
    }

    /// Records an external event of a request.
    pub(super) fn record_event(&self, request: &mut InFlightRequest, event: &str) {
        let (t_us, event, key) =
            (self.since_start_us(monotonic_us()), event.to_owned(), String::new());
        request.external.push(LaneEvent { t_us, event, key, value: None, fence: None });
    }

    pub async fn pause_replica(&self, request: &mut InFlightRequest) {
        self.cluster.hands.replicas[request.replica].pause().await;
        self.record_event(request, "paused");
    }

    pub async fn resume_replica(&self, request: &mut InFlightRequest) {
        self.record_event(request, "resumed");
        self.cluster.hands.replicas[request.replica].resume().await;
    }

    /// Kills the replica that executes the request, and waits until the connection breaks. The
    /// supervisor restarts the replica; [`Scenario::restore`] waits for that.
    pub async fn kill_replica(&self, mut request: InFlightRequest) -> anyhow::Result<()> {
        self.cluster.hands.replicas[request.replica].kill().await;
        self.record_event(&mut request, "killed");
        // The connection breaks when the process ends.
        let response = self.response(request).await?;
        ensure!(response.status.is_none(), "it was answered although its replica was killed");
        Ok(())
    }

    /// Waits until every process responds again, and records which ones had to be restarted.
    pub async fn restore(&self) -> anyhow::Result<()> {
        for words in self.cluster.restore().await? {
            self.say(words).await;
        }
        Ok(())
    }

    /// Closes a request's connection before the response, as a client that disconnects does.
    pub fn disconnect(&self, mut request: InFlightRequest) {
        request.response.abort();
        self.record_event(&mut request, "hung up");
        let lane = self.new_lane(request.replica, request.id, request.label, request.sent_us);
        self.record_lane(Lane { events: request.external, ..lane });
    }

    /// Sends a request without a body to `cluster.replicas[replica]`, with the session `token`.
    pub(super) async fn send(
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
        load::send(self.cluster.replicas[replica], request.as_bytes()).await
    }

    pub(super) fn trace_events(&self, body: &Value) -> Vec<LaneEvent> {
        let trace = body.get("trace").cloned().unwrap_or_default();
        let trace: Vec<TraceRecord> = serde_json::from_value(trace).unwrap_or_default();
        let event = |traced: TraceRecord| {
            let TraceRecord { t_us, event, key, value, fence } = traced;
            LaneEvent { t_us: self.since_start_us(t_us), event, key, value, fence }
        };
        trace.into_iter().map(event).collect()
    }

    /// Returns a lane without events, for a request that was sent individually.
    pub(super) fn new_lane(&self, replica: usize, id: Uuid, label: String, sent_us: u64) -> Lane {
        Lane {
            request_id: id,
            label,
            replica: self.cluster.replicas[replica].port().to_string(),
            arm: None,
            sent_us: self.since_start_us(sent_us),
            answered_us: None,
            status: None,
            events: Vec::new(),
        }
    }

    pub(super) fn record_lane(&self, lane: Lane) {
        self.outcome.lock().lanes.push(lane);
    }

    /// Converts monotonic time to the time since the run began, both in µs.
    pub(super) fn since_start_us(&self, t_us: u64) -> u64 {
        t_us.saturating_sub(self.began_us)
    }

    pub(super) fn next_number(&self) -> usize {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes the progress to Postgres, where every replica reads it.
    pub(super) async fn save_progress(&self) {
        let progress = self.progress.lock().clone();
        if let Err(error) = store::save_progress(&self.cluster.pool, self.run, &progress).await {
            tracing::warn!(%error, "a run's progress can't be shown");
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct HoldInfo {
    pub(super) request_id: Uuid,
    pub(super) point: String,
    pub(super) since_us: u64,
}

pub(super) fn order_of(sku: &Sku) -> String {
    format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":1}}]}}")
}
