//! The waiting requests of one key of the [`super::queue`]: those with a place, by priority, and
//! those that wait for a place.
//!
//! Guarantees: the number of places per priority is bounded; a place is free as soon as its request
//! is served or cancelled; no arrival is missed. A channel (tokio's `mpsc` is a semaphore and a
//! list, too) would be less code, but a cancelled request would keep its place until the consumer
//! reaches it, and a channel cannot order by priority.
//!
//! Does not guarantee that one request is served at a time: that takes a single consumer.
//!
//! Tests: `tests/lock/queue.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::priority::{Number, Priority, PriorityQueue};
use super::queue::{Manner, WhenFull};
use crate::lock::Error;

/// Notifies a waiter that it is served.
pub(super) type Ticket = oneshot::Sender<Done>;
/// Dropped by the request when it is done.
pub(super) type Done = oneshot::Sender<()>;

/// The waiting requests of one key.
#[derive(Debug)]
pub(super) struct Line {
    inside: Mutex<PriorityQueue<Waiter>>,
    /// Free places, per priority.
    high: Arc<Semaphore>,
    normal: Arc<Semaphore>,
    outside: AtomicUsize,
    arrivals: Notify,
    /// Start of the current request's use of the key, in milliseconds of Unix time.
    pub(super) serving: watch::Sender<Option<i64>>,
}

/// A request with a place, which is free again when the request is served or cancelled.
#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    _place: OwnedSemaphorePermit,
}

impl Line {
    pub(super) fn new(places: usize) -> Self {
        let room = || Arc::new(Semaphore::new(places));
        Self {
            inside: Mutex::default(),
            high: room(),
            normal: room(),
            outside: AtomicUsize::new(0),
            arrivals: Notify::new(),
            serving: watch::Sender::new(None),
        }
    }

    /// Removes and returns the next request to serve; waits for one to arrive.
    ///
    /// # Cancel safety
    /// Safe: a removed request is returned without a further await, and [`Notify`] stores the
    /// permit of an arrival. There must be one consumer only.
    pub(super) async fn next(&self) -> Ticket {
        loop {
            let next = self.inside.lock().pop();
            match next {
                Some(waiter) => return waiter.ticket,
                None => self.arrivals.notified().await,
            }
        }
    }

    /// Returns the number of requests with a place.
    pub(super) fn waiting(&self) -> usize {
        self.inside.lock().len()
    }

    /// Returns the number of requests that wait for a place.
    pub(super) fn outside(&self) -> usize {
        self.outside.load(Ordering::Relaxed)
    }

    /// Acquires a place in the queue; returns `None` if there is none until `until`. Waiters get
    /// places in FIFO order.
    ///
    /// # Errors
    /// [`Error::Full`] if the options do not allow waiting.
    ///
    /// # Cancel safety
    /// Safe: a dropped future stops waiting, and frees a place that it acquired.
    pub(super) async fn a_place(
        &self,
        manner: &Manner,
        until: Instant,
    ) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let room = match manner.priority.unwrap_or_default() {
            Priority::High => &self.high,
            Priority::Normal => &self.normal,
        };
        match (room.clone().try_acquire_owned(), manner.when_full) {
            (Ok(place), _) => Ok(Some(place)),
            (Err(_), WhenFull::Fail | WhenFull::Refuse) => Err(Error::Full),
            (Err(_), WhenFull::Wait | WhenFull::WaitFor(_)) => {
                let _outside = Outside::of(self);
                let place = timeout_at(until, room.clone().acquire_owned()).await;
                Ok(place.ok().and_then(Result::ok))
            }
        }
    }

    /// Joins the queue behind the requests of its priority.
    pub(super) fn join(
        self: &Arc<Self>,
        priority: Priority,
        ticket: Ticket,
        place: OwnedSemaphorePermit,
    ) -> InLine {
        let number = self.inside.lock().join(priority, Waiter { ticket, _place: place });
        self.arrivals.notify_one();
        InLine { line: self.clone(), number }
    }
}

/// Counts a request that waits for a place.
#[derive(Debug)]
struct Outside<'a>(&'a AtomicUsize);

impl<'a> Outside<'a> {
    fn of(line: &'a Line) -> Self {
        line.outside.fetch_add(1, Ordering::Relaxed);
        Self(&line.outside)
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Membership in the queue; leaves it on drop.
#[derive(Debug)]
pub(super) struct InLine {
    line: Arc<Line>,
    number: Number,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let left = self.line.inside.lock().leave(self.number);
        // After the mutex is unlocked: a freed place wakes a waiter.
        drop(left);
    }
}
