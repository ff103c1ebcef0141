//! The waiters of one key of the [`super::queue`]: inside by priority, and outside for a place.
//!
//! Guarantees: so many inside at most, for each priority; a place is free again the moment its
//! owner is called, or goes; nobody who arrives is overlooked. A channel (tokio's `mpsc` is a
//! semaphore and a list, too) would be less to read, but there whoever has gone keeps their place
//! until the consumer comes by, and nothing inside can be put in order.
//!
//! Does not guarantee anything about turns: there is to be one consumer, who calls them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::priority::{Number, Priority, PriorityQueue};
use super::queue::{Manner, WhenFull};
use crate::lock::Error;

/// A waiter, to be told that it is its turn.
pub(super) type Ticket = oneshot::Sender<Done>;
/// Dropped by whoever has had its turn.
pub(super) type Done = oneshot::Sender<()>;

/// Those who wait for one key.
#[derive(Debug)]
pub(super) struct Line {
    inside: Mutex<PriorityQueue<Waiter>>,
    /// Places that are free, for each priority.
    high: Arc<Semaphore>,
    normal: Arc<Semaphore>,
    outside: AtomicUsize,
    arrivals: Notify,
    /// Since when somebody has their turn.
    pub(super) serving: watch::Sender<Option<i64>>,
}

/// Somebody who waits, and the place they take; it is free again when they are called, or leave.
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

    /// Whose turn it is, as soon as somebody is there.
    ///
    /// # Cancel safety
    /// Safe: who was taken out is returned without another await. There is one consumer, and an
    /// arrival that it did not wait for is remembered.
    pub(super) async fn next(&self) -> Ticket {
        loop {
            let next = self.inside.lock().pop();
            match next {
                Some(waiter) => return waiter.ticket,
                None => self.arrivals.notified().await,
            }
        }
    }

    /// How many wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.inside.lock().len()
    }

    /// How many wait for a place.
    pub(super) fn outside(&self) -> usize {
        self.outside.load(Ordering::Relaxed)
    }

    /// A place in the house; `None` when the time for it is up.
    ///
    /// # Errors
    /// [`Error::Full`] for whoever would not wait for one.
    ///
    /// # Cancel safety
    /// Safe: who is dropped no longer waits, and a place that was theirs already is free again.
    /// Those who wait get theirs in the order in which they came.
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

    /// Joins the line.
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

/// Counts somebody who waits for a place.
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

/// Standing in line; dropped, one has left it.
#[derive(Debug)]
pub(super) struct InLine {
    line: Arc<Line>,
    number: Number,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let left = self.line.inside.lock().leave(self.number);
        // Not under the lock: the place wakes whoever waits for it.
        drop(left);
    }
}
