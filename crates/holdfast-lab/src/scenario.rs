//! Drives a lesson: sends requests, pauses and resumes them at probe points, records the result.
//! Their order is certain, and every wait bounded.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_lock::clock::monotonic_us;
use parking_lot::Mutex;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use sqlx::{Decode, Postgres, Type};
use tokio::time::{Instant, interval, sleep};
use uuid::Uuid;

use super::cluster::{LESSON_KEY_PREFIX, ManagedCluster, connect};
use super::request::{InFlightRequest, LabResponse, RESPONSE_TIMEOUT, format_request, traced};
use super::run::{
    Evidence, Lane, MAX_EVENTS, RunProgress, RunRequest, RunResult, SceneResult, told,
};
use super::store;
use holdfast_base::messages::{Message, Text, message};
use holdfast_services::load;
use holdfast_shop::audit::{self, ItemAudit};
use holdfast_shop::probe::PausedRequest;
use holdfast_shop::{Sku, Strategy};
use holdfast_story::{EventKind, TimelineEvent};

const PUBLISH_INTERVAL: Duration = Duration::from_millis(50);
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct PausedWorker {
    replica: usize,
    request_id: Uuid,
    lane: Lane,
}

#[derive(Debug)]
pub struct Scenario {
    pub(super) cluster: Arc<ManagedCluster>,
    run: Uuid,
    pub(super) request: RunRequest,
    pub(super) progress: Mutex<RunProgress>,
    pub(super) outcome: Mutex<RunResult>,
    pub(super) began_us: u64,
    items: Mutex<Vec<Sku>>,
    /// Id of the scene of a lesson that its requests belong to.
    scene: Mutex<String>,
}

impl Scenario {
    pub(super) fn new(cluster: Arc<ManagedCluster>, run: Uuid, request: RunRequest) -> Self {
        Self {
            cluster,
            run,
            request,
            progress: Mutex::default(),
            outcome: Mutex::default(),
            began_us: monotonic_us(),
            items: Mutex::default(),
            scene: Mutex::default(),
        }
    }

    pub(super) fn into_outcome(self) -> RunResult {
        let steps = self.progress.into_inner().steps;
        RunResult { steps, ..self.outcome.into_inner() }
    }

    pub(super) fn replica_count(&self) -> usize {
        self.cluster.replicas.len()
    }

    /// Returns the index of a lesson's replica. Lessons count from the last one: faults spare the
    /// first, whose pages the visitor is likely to look at.
    pub(super) fn replica_index(&self, replica: usize) -> usize {
        let replicas = self.cluster.replicas.len();
        replicas - 1 - replica % replicas
    }

    pub(super) async fn connection(&self) -> anyhow::Result<holdfast_shop::db::Connection> {
        Ok(self.cluster.pool.acquire().await.map_err(|(_, error)| error)?)
    }

    /// Begins a scene: what is drawn together. The requests that follow belong to it.
    pub fn scene(&self, id: &str) {
        id.clone_into(&mut self.scene.lock());
    }

    /// Begins a scene, with an item of its own.
    pub async fn scene_of_item(&self, id: &str, stock: i64) -> anyhow::Result<Sku> {
        self.scene(id);
        self.item(stock).await
    }

    pub(super) fn current_scene(&self) -> String {
        self.scene.lock().clone()
    }

    /// Returns how many requests and actors a scene has so far.
    pub fn lanes_of(&self, scene: &str) -> usize {
        self.outcome.lock().lanes.iter().filter(|lane| lane.scene == scene).count()
    }

    /// Returns the lane of an actor of the scene that sends no request: a database session, a
    /// Redis, a person.
    pub fn actor(&self, label: impl Into<Text>) -> Lane {
        let lane = Lane::new(Uuid::nil(), label, "", monotonic_us());
        Lane { scene: self.current_scene(), ..lane }
    }

    pub fn say(&self, step: impl Into<Text>) {
        self.progress.lock().steps.push(step.into());
    }

    /// Says in one sentence what the current scene has shown, if it has.
    pub fn conclude(&self, is_shown: bool, sentence: Message) {
        let sentence = Text::from(told(is_shown, sentence));
        self.say(&sentence);
        let scene = SceneResult { id: self.current_scene(), sentence };
        self.outcome.lock().scenes.push(scene);
    }

    /// Records a measurement; `ok` is false if it contradicts the claim.
    pub fn evidence(&self, name: impl Into<Text>, value: impl Into<Text>, ok: bool) {
        let evidence = Evidence { name: name.into(), value: value.into(), ok };
        self.outcome.lock().evidence.push(evidence);
    }

    /// Waits for the response, and records the request's lane.
    pub async fn response(&self, mut request: InFlightRequest) -> anyhow::Result<LabResponse> {
        let label = request.lane.label.english();
        let joined = tokio::time::timeout(RESPONSE_TIMEOUT, &mut request.response).await;
        let joined = joined.with_context(|| format!("{label} received no response"))?;

        // A connection that broke is a result, too: replicas are killed on purpose.
        let response = LabResponse::new(joined?.ok());
        let lane = match response.status {
            Some(_) => request.lane.answered(&response, monotonic_us()),
            None => request.lane_of_pause(),
        };
        self.record_lane(lane);
        Ok(response)
    }

    /// Waits until the request is paused at its probe point; fails if it is answered before.
    pub async fn wait_until_paused(&self, request: &mut InFlightRequest) -> anyhow::Result<()> {
        let label = request.lane.label.english();
        let trace = poll(&format!("{label} is paused at its point"), async || {
            let mut paused = self.paused_requests(request.replica).await?.into_iter();
            let id = request.lane.request_id;
            let paused = paused.find(|paused| paused.request_id == id);
            let is_over = paused.is_none() && request.response.is_finished();
            ensure!(!is_over, "{label} received its response before it was paused");
            Ok(paused.map(|paused| paused.trace))
        })
        .await?;

        request.seen = trace.into_iter().map(traced).collect();
        Ok(())
    }

    pub(super) async fn paused_requests(
        &self,
        replica: usize,
    ) -> anyhow::Result<Vec<PausedRequest>> {
        let paused = self.call(replica, "GET", "/api/lab/paused", "").await?;
        Ok(serde_json::from_slice(&paused)?)
    }

    pub async fn resume_request(&self, request: &InFlightRequest) -> anyhow::Result<()> {
        let resumed = self.resume(request.replica, request.lane.request_id).await;
        resumed.with_context(|| request.lane.label.english())
    }

    pub(super) async fn resume(&self, replica: usize, id: Uuid) -> anyhow::Result<()> {
        self.call(replica, "POST", &format!("/api/lab/paused/{id}"), "").await.map(drop)
    }

    pub async fn finish(&self, request: InFlightRequest) -> anyhow::Result<LabResponse> {
        self.resume_request(&request).await?;
        self.response(request).await
    }

    pub async fn item(&self, stock: i64) -> anyhow::Result<Sku> {
        self.create_item(&json!({ "stock": stock })).await
    }

    /// Creates an item that shows what orders under `strategy` do: in units for that strategy, or
    /// without the constraint that would hide how much is oversold.
    pub async fn item_for(&self, strategy: &str, stock: i64) -> anyhow::Result<Sku> {
        let strategy = Strategy::named(strategy);
        let in_units = strategy.is_some_and(Strategy::has_own_items);
        let may_go_below_zero = strategy.is_some_and(Strategy::sells_below_zero);
        let item = json!({
            "stock": stock, "in_units": in_units, "may_go_below_zero": may_go_below_zero,
        });
        self.create_item(&item).await
    }

    async fn create_item(&self, item: &Value) -> anyhow::Result<Sku> {
        let item = self.call(0, "POST", "/api/lab/items", &item.to_string()).await?;

        let item: Value = serde_json::from_slice(&item)?;
        let sku: Sku = serde_json::from_value(item["sku"].clone())?;
        self.items.lock().push(sku.clone());
        Ok(sku)
    }

    pub(super) fn items(&self) -> Vec<Sku> {
        self.items.lock().clone()
    }

    /// Returns the value that a query on `id`, its `$1`, selects.
    pub async fn select<T>(&self, query: &'static str, id: Uuid) -> anyhow::Result<T>
    where
        T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
    {
        let value = sqlx::query_scalar(query).bind(id);
        Ok(value.fetch_one(&mut *self.connection().await?).await?)
    }

    pub async fn audit(&self, sku: &Sku) -> anyhow::Result<ItemAudit> {
        audit::check_item(&self.cluster.pool, sku).await?.context("the item was deleted")
    }

    pub async fn pause_replica(&self, request: &mut InFlightRequest) {
        self.cluster.processes.replicas[request.replica].pause().await;
        request.lane.happens(EventKind::Stopped);
    }

    pub async fn resume_replica(&self, request: &mut InFlightRequest) {
        // Noted before, because the replica's next event may follow at once.
        request.lane.happens(EventKind::Continued);
        self.cluster.processes.replicas[request.replica].resume().await;
    }

    /// Kills the replica that executes the request, which the supervisor restarts.
    pub async fn kill_replica(&self, mut request: InFlightRequest) -> anyhow::Result<()> {
        self.cluster.processes.replicas[request.replica].kill().await;
        request.lane.happens(EventKind::Killed);
        // The connection breaks when the process ends.
        let response = self.response(request).await?;
        let is_broken = response.status.is_none();
        ensure!(is_broken, "it received a response although its replica was killed");
        Ok(())
    }

    pub fn require_two_replicas(&self) -> anyhow::Result<()> {
        let has_two = self.replica_count() >= 2;
        ensure!(has_two, "this lesson needs two replicas: `holdfast up --replicas 2`");
        Ok(())
    }

    pub async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        connect(&self.cluster.redis_url).await
    }

    /// Returns a unique Redis key, which is deleted after the run.
    pub fn unique_key(&self, name: &str) -> String {
        format!("{LESSON_KEY_PREFIX}{}:{name}", Uuid::now_v7().simple())
    }

    pub async fn holder(&self, sku: &Sku) -> anyhow::Result<Option<String>> {
        self.query_lock("GET", sku).await
    }

    pub(super) fn lock_key(&self, sku: &Sku) -> String {
        format!("holdfast:lock:{}", sku.lock_key())
    }

    /// Returns the answer of Redis to a command on an item's lock key.
    pub async fn query_lock<T: FromRedisValue>(
        &self,
        command: &str,
        sku: &Sku,
    ) -> anyhow::Result<T> {
        let key = self.lock_key(sku);
        Ok(redis::cmd(command).arg(key).query_async(&mut self.redis().await?).await?)
    }

    /// Deletes all data of Redis, its counters too.
    pub async fn flush(&self) -> anyhow::Result<()> {
        redis::cmd("FLUSHALL").exec_async(&mut self.redis().await?).await?;
        let mut redis = self.actor("Redis");
        redis.happens(EventKind::Flushed);
        self.record_lane(redis);
        Ok(())
    }

    /// Waits until the item's queue has `inside` waiters, and `outside` wait for a place in it.
    pub async fn wait_until_queued(
        &self,
        beside: &InFlightRequest,
        sku: &Sku,
        (inside, outside): (usize, usize),
    ) -> anyhow::Result<()> {
        let key = sku.lock_key();
        wait_until("the requests are in the queue", async || {
            let body = self.call(beside.replica, "GET", "/api/lab/queues", "").await?;
            let queues: Vec<Value> = serde_json::from_slice(&body)?;
            let mut of_item = queues.iter().filter(|queue| queue["key"] == key.as_str());
            Ok(of_item.any(|queue| queue["inside"] == inside && queue["outside"] == outside))
        })
        .await
    }

    /// Resumes a request at its point as often as it retries, and waits for its response.
    pub async fn resume_until_done(&self, request: InFlightRequest) -> anyhow::Result<LabResponse> {
        while !request.response.is_finished() {
            // An error between two attempts, when the request is not paused.
            let _ = self.resume_request(&request).await;
            sleep(POLL_INTERVAL).await;
        }
        self.response(request).await
    }

    pub async fn restore(&self) -> anyhow::Result<()> {
        for step in self.cluster.restore().await? {
            self.say(step);
        }
        Ok(())
    }

    /// Closes the connection of a paused request, and resumes it.
    pub async fn disconnect(&self, mut request: InFlightRequest) -> anyhow::Result<()> {
        // Before it goes on: its response must find no connection.
        request.response.abort();
        request.lane.happens(EventKind::Disconnected);
        self.resume_request(&request).await?;
        self.record_lane(request.lane_of_pause());
        Ok(())
    }

    /// Makes a replica's order expiry worker idle for `length`, from now on.
    pub async fn idle_worker(&self, replica: usize, length: Duration) -> anyhow::Result<()> {
        self.control_worker(replica, &json!({ "rest_ms": u64::try_from(length.as_millis())? }))
            .await
    }

    /// Pauses a replica's worker at `point` the next time it has work, which it then does under
    /// `strategy`.
    pub async fn pause_worker(
        &self,
        replica: usize,
        point: &str,
        strategy: &str,
    ) -> anyhow::Result<()> {
        self.control_worker(replica, &json!({ "pause": point, "lock": strategy })).await
    }

    /// Waits for that. The lock key of `sku` joins the worker's lane to those of its orders.
    pub async fn wait_until_worker_paused(
        &self,
        replica: usize,
        point: &str,
        sku: &Sku,
    ) -> anyhow::Result<PausedWorker> {
        let replica = self.replica_index(replica);
        let paused = poll("the worker is paused at its point", async || {
            let mut paused = self.paused_requests(replica).await?.into_iter();
            Ok(paused.find(|paused| paused.point.name() == point))
        })
        .await?;

        let since_us = paused.since_us;
        let port = self.cluster.replicas[replica].port().to_string();
        // It belongs to the scene of its orders, and sends no request.
        let actor = self.actor(message!("run-label-the-worker"));
        let mut lane = Lane { replica: port, sent_us: since_us, ..actor };
        let event = TimelineEvent::new((), since_us, EventKind::named(point));
        lane.events.push(TimelineEvent { key: sku.lock_key().to_string(), ..event });
        lane.events.push(TimelineEvent::new((), since_us, EventKind::Paused));
        Ok(PausedWorker { replica, request_id: paused.request_id, lane })
    }

    pub async fn resume_worker(&self, mut worker: PausedWorker) -> anyhow::Result<()> {
        self.resume(worker.replica, worker.request_id).await.context("the worker")?;
        worker.lane.happens(EventKind::Resumed);
        self.record_lane(worker.lane);
        Ok(())
    }

    pub async fn kill_worker(&self, mut worker: PausedWorker) {
        self.cluster.processes.replicas[worker.replica].kill().await;
        worker.lane.happens(EventKind::Killed);
        self.record_lane(worker.lane);
    }

    async fn control_worker(&self, replica: usize, instruction: &Value) -> anyhow::Result<()> {
        let replica = self.replica_index(replica);
        self.call(replica, "POST", "/api/lab/worker", &instruction.to_string()).await.map(drop)
    }

    /// Sends a request to `cluster.replicas[replica]` as the lab's admin, which must succeed;
    /// returns the response's body.
    pub(super) async fn call(
        &self,
        replica: usize,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<Vec<u8>> {
        let admin = &self.cluster.admin;
        let request = format_request("localhost", (method, path), admin, &[], body);
        let (status, body) = load::send(self.cluster.replicas[replica], &request).await?;
        let text = String::from_utf8_lossy(&body);
        ensure!((200..300).contains(&status), "{method} {path}: {status} {text}");
        Ok(body)
    }

    /// Makes the pause of a recorded request what it stands for: work.
    pub fn pause_is_work(&self, request_id: Uuid) {
        let mut outcome = self.outcome.lock();
        let mut own = outcome.lanes.iter_mut().filter(|lane| lane.request_id == request_id);
        let events = own.next().into_iter().flat_map(|lane| &mut lane.events);
        for event in events {
            match event.kind {
                EventKind::Paused => event.kind = EventKind::Works,
                EventKind::Resumed => event.kind = EventKind::Worked,
                _ => {}
            }
        }
    }

    /// Records a lane with times of the monotonic clock, unless the run has [`MAX_EVENTS`]: a lab
    /// opens what a lab has saved.
    pub(super) fn record_lane(&self, lane: Lane) {
        let mut outcome = self.outcome.lock();
        let events: usize = outcome.lanes.iter().map(|lane| lane.events.len()).sum();
        if events + lane.events.len() <= MAX_EVENTS {
            outcome.lanes.push(lane.since(self.began_us));
        }
    }

    /// Writes the progress to Postgres, where every replica reads it, whenever it has changed.
    pub(super) async fn publish_progress(&self) -> Infallible {
        let mut ticks = interval(PUBLISH_INTERVAL);
        let mut published = RunProgress::default();

        loop {
            ticks.tick().await;
            let progress = self.progress.lock().clone();
            if progress == published {
                continue;
            }

            if let Err(error) = store::save_progress(&self.cluster.pool, self.run, &progress).await
            {
                tracing::warn!(%error, "a run's progress can't be shown");
            }
            published = progress;
        }
    }
}

/// Repeats `attempt` until it returns a value; fails after 20 s. `what` completes the error,
/// “timed out waiting until …”.
pub async fn poll<T>(
    what: &str,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let end = Instant::now() + WAIT_TIMEOUT;

    loop {
        if let Some(value) = attempt().await? {
            return Ok(value);
        }
        ensure!(Instant::now() < end, "timed out waiting until {what}");
        sleep(POLL_INTERVAL).await;
    }
}

pub async fn wait_until(
    what: &str,
    mut condition: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    poll(what, async || Ok(condition().await?.then_some(()))).await
}
