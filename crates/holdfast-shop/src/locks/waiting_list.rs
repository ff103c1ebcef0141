//! The waiting requests of one key of the [`super::queue_lock`]: those with a place, by priority,
//! and those that wait for a place.
//!
//! Guarantees: the number of places per priority is bounded; a place is free as soon as its request
//! is served or cancelled; no arrival is missed. In a channel a cancelled request would keep its
//! place until the consumer reaches it.
//!
//! Tests: `tests/it/locks/queue_lock.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_lock::clock::unix_ms;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::time::{Instant, timeout_at};

use super::priority::{Number, Priority, PriorityQueue};

/// Default capacity of a queue, per priority. (High priority has places of its own, so that waiting
/// buyers cannot keep out the restock they wait for.)
pub const DEFAULT_CAPACITY: usize = 1_024;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// `add`: fails with [`holdfast_lock::Error::QueueFull`].
    #[default]
    Fail,
    /// `offer`: rejects with a value, [`holdfast_lock::AcquireOutcome::Busy`].
    Reject,
    /// `put`: waits for a place until the request's deadline.
    Wait,
    /// `offer` with a timeout: waits for a place this long; without one, as long as a request waits
    /// for any lock ([`holdfast_lock::Settings::acquire_timeout`]).
    WaitFor(Option<Duration>),
}

#[derive(Debug, Clone, Copy, Default)]
pub struct QueueOptions {
    pub when_full: WhenFull,
    pub priority: Option<Priority>,
    /// Capacity per priority, [`DEFAULT_CAPACITY`] by default. Applies if the request creates
    /// the key's queue; an existing queue keeps its capacity.
    pub capacity: Option<usize>,
}

impl QueueOptions {
    /// Returns the time limits of a request that may wait for a lock until `until` and ends at
    /// `deadline`.
    pub fn deadlines(&self, deadline: Instant, until: Instant) -> QueueDeadlines {
        let place = match self.when_full {
            WhenFull::Wait => deadline,
            WhenFull::WaitFor(Some(time)) => deadline.min(Instant::now() + time),
            WhenFull::WaitFor(None) | WhenFull::Fail | WhenFull::Reject => until,
        };
        QueueDeadlines { place, service: until.max(place) }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct QueueDeadlines {
    pub place: Instant,
    pub service: Instant,
}

pub(super) type ServedSender = oneshot::Sender<DoneSender>;
pub(super) type DoneSender = oneshot::Sender<()>;

#[derive(Debug)]
pub(super) struct WaitingList {
    state: Mutex<WaitingState>,
    high: Arc<Semaphore>,
    normal: Arc<Semaphore>,
    waiting_for_place: AtomicUsize,
    arrivals: Notify,
}

#[derive(Debug, Default)]
struct WaitingState {
    queue: PriorityQueue<QueuedRequest>,
    /// Start of the current use of the key, in Unix time; `None` while the consumer is idle.
    served_since_ms: Option<i64>,
}

#[derive(Debug)]
struct QueuedRequest {
    sender: ServedSender,
    _place: Option<OwnedSemaphorePermit>,
}

impl WaitingList {
    pub(super) fn new(places: usize) -> Self {
        Self {
            state: Mutex::default(),
            high: Arc::new(Semaphore::new(places)),
            normal: Arc::new(Semaphore::new(places)),
            waiting_for_place: AtomicUsize::new(0),
            arrivals: Notify::new(),
        }
    }

    /// Removes and returns the next request to serve; waits for one to arrive. The consumer, of
    /// which there must be only one, then counts as busy until it asks for the next.
    pub(super) async fn next(&self) -> ServedSender {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.queue.pop();
                // Under the same lock: between the two, a request could find the consumer idle.
                state.served_since_ms = next.is_some().then(unix_ms);
                next
            };

            match next {
                Some(request) => return request.sender,
                None => self.arrivals.notified().await,
            }
        }
    }

    pub(super) fn served_since_ms(&self) -> Option<i64> {
        self.state.lock().served_since_ms
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().queue.len()
    }

    pub(super) fn waiting_for_place(&self) -> usize {
        self.waiting_for_place.load(Ordering::Relaxed)
    }

    /// Acquires a place in the queue; returns `None` if there is none until `until`, and fails if
    /// the options do not allow waiting. Waiters get places in FIFO order.
    pub(super) async fn place(
        &self,
        options: &QueueOptions,
        until: Instant,
    ) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
        let places = match options.priority.unwrap_or_default() {
            Priority::High => &self.high,
            Priority::Normal => &self.normal,
        };

        match (places.clone().try_acquire_owned(), options.when_full) {
            (Ok(place), _) => Ok(Some(place)),
            (Err(full), WhenFull::Fail | WhenFull::Reject) => Err(full),
            (Err(_), WhenFull::Wait | WhenFull::WaitFor(_)) => {
                self.waiting_for_place.fetch_add(1, Ordering::Relaxed);
                // Counted until it is dropped: a caller may go away while it waits.
                let _counted = WaitingForPlace(&self.waiting_for_place);
                let place = timeout_at(until, places.clone().acquire_owned()).await;
                Ok(place.ok().and_then(Result::ok))
            }
        }
    }

    /// Joins the queue behind the requests of its priority. A request without a place joins only if
    /// the consumer is idle and no request waits.
    pub(super) fn join(
        self: &Arc<Self>,
        priority: Priority,
        sender: ServedSender,
        place: Option<OwnedSemaphorePermit>,
    ) -> Option<Membership> {
        let mut state = self.state.lock();
        let is_idle = state.queue.is_empty() && state.served_since_ms.is_none();
        if place.is_none() && !is_idle {
            return None;
        }

        let number = state.queue.join(priority, QueuedRequest { sender, _place: place });
        self.arrivals.notify_one();
        Some(Membership { list: self.clone(), number })
    }
}

#[derive(Debug)]
struct WaitingForPlace<'a>(&'a AtomicUsize);

impl Drop for WaitingForPlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Membership {
    list: Arc<WaitingList>,
    number: Number,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let left = self.list.state.lock().queue.leave(self.number);
        // After the mutex is unlocked: a freed place wakes a waiter.
        drop(left);
    }
}
