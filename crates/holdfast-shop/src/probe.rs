//! Probe points: named places in the shop where the lab can trace, delay or pause a request.
//!
//! Outside the lab the probe is [`Probe::Off`], and [`Probe::at`] is one comparison. In the lab it
//! does extra work (`Holdfast-Work-Ms`), records the trace (`Holdfast-Trace`) and pauses the
//! request (`Holdfast-Pause`) until a [`PauseBoard`] resumes it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantNames};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;
use uuid::Uuid;

use holdfast_lock::clock;

use crate::budget::{Budget, BudgetPermit};

#[derive(Serialize, Deserialize, EnumString, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A worker has claimed due orders, and not processed them yet.
    Claimed,
    Wait,
    /// It has created the key of its lock, and is about to set the expiry.
    Expire,
    Held,
    /// It has taken its units from where its strategy counts them, before the read.
    Deducted,
    /// It has read the value that it is going to change.
    Read,
    /// It has written the value it computed, and the ledger entry.
    Write,
    /// It is about to commit; if its write is one autocommitted statement, about to send it.
    Commit,
    /// The commit is done; the response is not sent yet.
    Committed,
    /// It has verified that it owns the lock, and is about to delete it.
    Delete,
    /// It is done with the lock: it releases it, or the next batch keeps it.
    Release,
}

impl Point {
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    pub fn names() -> String {
        Self::VARIANTS.join(", ")
    }

    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone)]
pub struct ProbedValue {
    /// The lock key of the value, e.g. `{sku:tea}`.
    pub key: String,
    pub value: Option<i64>,
    pub fence: Option<i64>,
}

impl ProbedValue {
    pub fn key(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None, fence: None }
    }

    #[must_use]
    pub fn under(self, fence: Option<i64>) -> Self {
        Self { fence, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Time of the machine's monotonic clock, in microseconds.
    pub t_us: u64,
    pub replica: String,
    /// Name of a point, or of what happened between points: `paused`, `refused`, `lost`, ….
    pub event: Cow<'static, str>,
    pub key: String,
    pub value: Option<i64>,
    pub fence: Option<i64>,
}

#[derive(Debug, Clone, Default)]
pub enum Probe {
    #[default]
    Off,
    Lab(Arc<RequestProbe>),
}

#[derive(Debug, Clone, Copy)]
pub struct Pause {
    pub at: Option<Point>,
    pub length: Option<Duration>,
    pub until: Instant,
}

#[derive(Debug)]
pub struct RequestProbe {
    pub replica: String,
    pub work: Duration,
    pub record: bool,
    pub pause: Option<Pause>,
    /// Its permit to pause; the lab's own requests need none.
    pub permit: Option<BudgetPermit>,
    /// True if too many requests have a pause: it must be rejected.
    pub is_refused: bool,
    /// True if its connection returns to the pool during a pause, where no transaction is open.
    pub yields_connection: bool,
    pub request_id: Uuid,
    /// The user who sent the request; `None` for a request of the replica itself.
    pub owner: Option<Uuid>,
    pub board: PauseBoard,
    pub released: AtomicBool,
    pub events: Mutex<Vec<TraceEvent>>,
}

impl Probe {
    /// Passes a point. Returns at once, unless the lab delays or pauses the request at this point.
    ///
    /// Consumes `seen` only if a trace is recorded.
    ///
    /// # Cancel safety
    /// Dropping the future ends the pause; recorded events stay.
    pub async fn at(&self, point: Point, seen: impl IntoIterator<Item = ProbedValue>) {
        if matches!(self, Probe::Lab(_)) {
            self.at_since(point, clock::monotonic_us(), seen).await;
        }
    }

    /// Like [`Self::at`], for what was requested at `since_us` and is done now. The event has that
    /// time, unless a later one is recorded: Redis executes a release before its reply is back, and
    /// the next holder may have the lock by then.
    pub async fn at_since(
        &self,
        point: Point,
        since_us: u64,
        seen: impl IntoIterator<Item = ProbedValue>,
    ) {
        let Probe::Lab(probe) = self else { return };
        probe.record(point.name(), since_us, seen);

        if point == Point::Read && !probe.work.is_zero() {
            tokio::time::sleep(probe.work).await;
        }

        if let Some(pause) = probe.pause
            && !self.is_refused()
            && pause.at.is_none_or(|place| place == point)
        {
            let end = pause.length.map_or(pause.until, |length| Instant::now() + length);
            probe.board.pause(probe, point, end.min(pause.until)).await;
        }
    }

    /// Records what happened between two points. It pauses nothing.
    ///
    /// Consumes `seen` only if a trace is recorded.
    pub fn note(&self, event: &'static str, seen: impl IntoIterator<Item = ProbedValue>) {
        if let Probe::Lab(probe) = self {
            probe.record(event, clock::monotonic_us(), seen);
        }
    }

    pub fn records(&self) -> bool {
        matches!(self, Probe::Lab(probe) if probe.record)
    }

    pub fn is_refused(&self) -> bool {
        matches!(self, Probe::Lab(probe) if probe.is_refused)
    }

    pub fn yields_connection(&self) -> bool {
        matches!(self, Probe::Lab(probe) if probe.yields_connection)
    }

    pub fn trace(&self) -> Option<Vec<TraceEvent>> {
        match self {
            Probe::Lab(probe) if probe.record => Some(probe.events.lock().clone()),
            _ => None,
        }
    }
}

const MAX_PAUSES: usize = 64;
const MAX_PAUSES_PER_USER: usize = 32;

/// The requests of one process that are paused at a point. Cheap to clone; clones share one board.
#[derive(Debug, Clone)]
pub struct PauseBoard {
    entries: Arc<Mutex<BTreeMap<Uuid, BoardEntry>>>,
    permits: Budget,
}

impl Default for PauseBoard {
    fn default() -> Self {
        let permits = Budget::new(MAX_PAUSES, MAX_PAUSES_PER_USER);
        Self { entries: Arc::default(), permits }
    }
}

#[derive(Debug)]
struct BoardEntry {
    owner: Option<Uuid>,
    point: Point,
    since_us: u64,
    trace: Vec<TraceEvent>,
    go: oneshot::Sender<()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PausedRequest {
    /// Its `X-Request-Id`.
    pub request_id: Uuid,
    /// The name of the probe point.
    #[schema(value_type = String, example = "commit")]
    pub point: Point,
    /// Start of the pause on the machine's monotonic clock, in microseconds.
    pub since_us: u64,
    /// Its trace so far, if it records one.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub trace: Vec<TraceEvent>,
}

impl PauseBoard {
    pub fn permit(&self, user: Uuid) -> Option<BudgetPermit> {
        self.permits.try_acquire(user)
    }

    /// Pauses a request until it is resumed, at most until `until`. Does nothing if its probe was
    /// released, or if a request of the same id is paused.
    async fn pause(&self, probe: &RequestProbe, point: Point, until: Instant) {
        let (go, gone) = oneshot::channel();
        let request_id = probe.request_id;
        let since_us = clock::monotonic_us();

        {
            let mut entries = self.entries.lock();
            // Under the lock, so that `release` either is seen here or finds the entry.
            // An id that a client chose twice names only the first request.
            if probe.released.load(Ordering::Acquire) || entries.contains_key(&request_id) {
                return;
            }
            // A pause concerns the request, and no key.
            probe.record("paused", clock::monotonic_us(), [ProbedValue::key("")]);
            let trace = probe.events.lock().clone();
            let owner = probe.owner;
            entries.insert(request_id, BoardEntry { owner, point, since_us, trace, go });
        }

        // `resume` removes the entry; so does this guard, on timeout or cancellation.
        let _entry = BoardRemoval { board: self, request_id, since_us };
        let _ = timeout_at(until, gone).await;
        probe.record("resumed", clock::monotonic_us(), [ProbedValue::key("")]);
    }

    pub fn paused(&self, owner: Option<Uuid>) -> Vec<PausedRequest> {
        let entries = self.entries.lock();
        let of_owner = entries.iter().filter(|(_, entry)| owner.is_none() || entry.owner == owner);
        let paused = of_owner.map(|(request_id, entry)| PausedRequest {
            request_id: *request_id,
            point: entry.point,
            since_us: entry.since_us,
            trace: entry.trace.clone(),
        });
        paused.collect()
    }

    /// Returns the point at which a request is paused, and since when.
    pub fn paused_at(&self, request_id: Uuid) -> Option<(Point, u64)> {
        self.entries.lock().get(&request_id).map(|entry| (entry.point, entry.since_us))
    }

    /// Resumes a request that has been paused since `since_us`, or since any time for `None`.
    /// Returns `false` if it is not paused, or since another time: at another point.
    #[must_use]
    pub fn resume(&self, request_id: Uuid, since_us: Option<u64>) -> bool {
        let mut entries = self.entries.lock();
        let there = entries.get(&request_id);
        if there.is_none_or(|entry| since_us.is_some_and(|since_us| entry.since_us != since_us)) {
            return false;
        }
        entries.remove(&request_id).is_some_and(|entry| entry.go.send(()).is_ok())
    }
}

struct BoardRemoval<'a> {
    board: &'a PauseBoard,
    request_id: Uuid,
    since_us: u64,
}

impl Drop for BoardRemoval<'_> {
    fn drop(&mut self) {
        let mut entries = self.board.entries.lock();
        if entries.get(&self.request_id).is_some_and(|entry| entry.since_us == self.since_us) {
            entries.remove(&self.request_id);
        }
    }
}

impl RequestProbe {
    /// Creates a probe without work, trace and pause, for a request of the replica itself.
    pub fn new(replica: impl Into<String>, request_id: Uuid, board: &PauseBoard) -> Self {
        Self {
            replica: replica.into(),
            work: Duration::ZERO,
            record: false,
            pause: None,
            permit: None,
            is_refused: false,
            yields_connection: false,
            request_id,
            owner: None,
            board: board.clone(),
            released: AtomicBool::new(false),
            events: Mutex::default(),
        }
    }

    pub fn release(&self) {
        self.released.store(true, Ordering::Release);
        let _ = self.board.resume(self.request_id, None);
    }

    fn record(&self, event: &'static str, at_us: u64, seen: impl IntoIterator<Item = ProbedValue>) {
        if !self.record {
            return;
        }

        let mut events = self.events.lock();
        // In the order in which they were recorded.
        let t_us = events.last().map_or(at_us, |last| at_us.max(last.t_us));
        events.extend(seen.into_iter().map(|seen| TraceEvent {
            t_us,
            replica: self.replica.clone(),
            event: event.into(),
            key: seen.key,
            value: seen.value,
            fence: seen.fence,
        }));
    }
}
