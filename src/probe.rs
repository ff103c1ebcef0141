//! The lab's one seam: named points in the shop that a request passes.
//!
//! Where the shop waits, reads, writes, commits and releases it calls [`Probe::at`]. Outside the
//! lab the probe is [`Probe::Off`], and the call is one comparison. In the lab the same call is
//! where extra work is done (`Holdfast-Work-Ms`), where the trace is taken (`Holdfast-Trace`) and
//! where a request can be held (`Holdfast-Pause`), for instance to be killed between commit and
//! answer. Who is held is on a [`Board`], and can be told there to go on.
//!
//! The shop knows nothing of lessons; it only says where it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::clock;

/// Where a request is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// A worker has claimed what is due, and done nothing about it yet.
    Claimed,
    /// It asks for its lock.
    Wait,
    /// It has created its lock's key, and is about to give it an expiry.
    Expire,
    /// It has the lock.
    Held,
    /// It has read the value it is going to change.
    Read,
    /// It has written the value it computed, and the ledger entry.
    Write,
    /// It is about to commit.
    Commit,
    /// The commit is done; the answer is not given yet.
    Committed,
    /// It has seen that the lock is its own, and is about to delete it.
    Delete,
    /// It has given the lock back.
    Release,
}

/// In the order in which a request may pass them, with their names in a trace.
const ALL: [(Point, &str); 10] = [
    (Point::Claimed, "claimed"),
    (Point::Wait, "wait"),
    (Point::Expire, "expire"),
    (Point::Held, "held"),
    (Point::Read, "read"),
    (Point::Write, "write"),
    (Point::Commit, "commit"),
    (Point::Committed, "committed"),
    (Point::Delete, "delete"),
    (Point::Release, "release"),
];

impl Point {
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known)| *known == name).map(|(point, _)| *point)
    }

    pub fn names() -> String {
        ALL.map(|(_, name)| name).join(", ")
    }

    pub fn name(self) -> &'static str {
        ALL.iter().find(|(point, _)| *point == self).map_or("", |(_, name)| name)
    }
}

/// One thing that was seen at a point: whose value, what it was, and under which fence.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The lock key of the value, e.g. `{sku:tea}`.
    pub key: String,
    pub value: Option<i64>,
    pub fence: Option<i64>,
}

impl Seen {
    pub fn key(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None, fence: None }
    }

    pub fn value(key: impl Into<String>, value: i64) -> Self {
        Self { key: key.into(), value: Some(value), fence: None }
    }

    /// Adds the fence of its lock, if it has one.
    #[must_use]
    pub fn under(self, fence: Option<i64>) -> Self {
        Self { fence, ..self }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// When, on the machine's monotonic clock, in microseconds.
    pub t_us: u64,
    pub replica: String,
    /// What happened: the name of a [`Point`].
    pub event: &'static str,
    pub key: String,
    pub value: Option<i64>,
    pub fence: Option<i64>,
}

/// What a request carries past the points. Cheap to clone; clones share one trace.
#[derive(Debug, Clone, Default)]
pub enum Probe {
    #[default]
    Off,
    Lab(Arc<Watch>),
}

#[derive(Debug, Clone, Copy)]
pub struct Pause {
    /// At this point; at every one if none was said.
    pub at: Option<Point>,
    pub length: Option<Duration>,
    /// Not beyond this: the request's own time.
    pub until: Instant,
}

/// What the lab does with a request at its points.
#[derive(Debug)]
pub struct Watch {
    pub replica: String,
    /// Extra work between read and write.
    pub work: Duration,
    pub record: bool,
    /// Where to hold the request, and until when at the latest.
    pub pause: Option<Pause>,
    pub request_id: Uuid,
    pub board: Board,
    /// Whether it is held nowhere any more.
    pub released: AtomicBool,
    pub events: Mutex<Vec<Event>>,
}

impl Probe {
    /// Passes a point. Returns at once, unless the lab wants something of this request here.
    ///
    /// `seen` is only looked at when somebody watches.
    ///
    /// # Cancel safety
    /// Dropping the future ends the pause; what was noted stays noted.
    pub async fn at(&self, point: Point, seen: impl IntoIterator<Item = Seen>) {
        let Probe::Lab(watch) = self else { return };
        watch.note(point, seen);
        if point == Point::Read && !watch.work.is_zero() {
            tokio::time::sleep(watch.work).await;
        }
        if let Some(pause) = watch.pause
            && pause.at.is_none_or(|place| place == point)
            && !watch.released.load(Ordering::Acquire)
        {
            let end = pause.length.map_or(pause.until, |length| Instant::now() + length);
            watch.board.hold(watch.request_id, point, end.min(pause.until)).await;
        }
    }

    pub fn records(&self) -> bool {
        matches!(self, Probe::Lab(watch) if watch.record)
    }

    /// What was seen, in order; `None` when no trace was asked for.
    pub fn trace(&self) -> Option<Vec<Event>> {
        match self {
            Probe::Lab(watch) if watch.record => Some(watch.events.lock().clone()),
            _ => None,
        }
    }
}

/// Who is held at a point at this moment, in one process. Cheap to clone; clones are one board.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<Uuid, Stop>>>);

#[derive(Debug)]
struct Stop {
    point: Point,
    since_us: u64,
    go: oneshot::Sender<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Held {
    pub request_id: Uuid,
    pub point: Point,
    /// Since when, on the machine's monotonic clock, in microseconds.
    pub since_us: u64,
}

impl Board {
    /// Holds a request until it is let go, or until then.
    async fn hold(&self, request_id: Uuid, point: Point, until: Instant) {
        let (go, gone) = oneshot::channel();
        let since_us = clock::monotonic_us();
        self.0.lock().insert(request_id, Stop { point, since_us, go });
        // Whoever lets it go takes it off; so does the drop, when the request is given up.
        let _entry = Entry { board: self, request_id, since_us };
        let _ = timeout_at(until, gone).await;
    }

    pub fn held(&self) -> Vec<Held> {
        let stops = self.0.lock();
        let held = stops.iter().map(|(request_id, stop)| Held {
            request_id: *request_id,
            point: stop.point,
            since_us: stop.since_us,
        });
        held.collect()
    }

    /// Lets a request go on that is held since then; since whenever, if that was not said. `false`
    /// when it is not held, or held since another time: at another point.
    #[must_use]
    pub fn let_go(&self, request_id: Uuid, since_us: Option<u64>) -> bool {
        let mut stops = self.0.lock();
        let there = stops.get(&request_id);
        if there.is_none_or(|stop| since_us.is_some_and(|since_us| stop.since_us != since_us)) {
            return false;
        }
        stops.remove(&request_id).is_some_and(|stop| stop.go.send(()).is_ok())
    }
}

struct Entry<'a> {
    board: &'a Board,
    request_id: Uuid,
    since_us: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut stops = self.board.0.lock();
        if stops.get(&self.request_id).is_some_and(|stop| stop.since_us == self.since_us) {
            stops.remove(&self.request_id);
        }
    }
}

impl Watch {
    /// Holds the request nowhere any more, from now on.
    pub fn release(&self) {
        self.released.store(true, Ordering::Release);
        // Whoever comes to a point just now sees the one or is on the other.
        let _ = self.board.let_go(self.request_id, None);
    }

    fn note(&self, point: Point, seen: impl IntoIterator<Item = Seen>) {
        if !self.record {
            return;
        }
        let t_us = clock::monotonic_us();
        let mut events = self.events.lock();
        events.extend(seen.into_iter().map(|seen| Event {
            t_us,
            replica: self.replica.clone(),
            event: point.name(),
            key: seen.key,
            value: seen.value,
            fence: seen.fence,
        }));
    }
}
