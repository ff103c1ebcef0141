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
//! Tests: `tests/locks/queue.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::priority::{Number, Priority, PriorityQueue};
use super::queue_options::{QueueFull, QueueOptions, WhenFull};

/// Notifies a waiter that it is served.
pub(super) type ServedSender = oneshot::Sender<DoneSender>;
/// Dropped by the request when it is done.
pub(super) type DoneSender = oneshot::Sender<()>;

/// The waiting requests of one key.
#[derive(Debug)]
pub(super) struct WaitingList {
    queued: Mutex<PriorityQueue<QueuedRequest>>,
    /// Free places, per priority.
    high: Arc<Semaphore>,
    normal: Arc<Semaphore>,
    waiting_for_place: AtomicUsize,
    arrivals: Notify,
    /// Start of the current request's use of the key, in milliseconds of Unix time.
    pub(super) serving: watch::Sender<Option<i64>>,
}

/// A request with a place, which is free again when the request is served or cancelled.
#[derive(Debug)]
struct QueuedRequest {
    served: ServedSender,
    _place: OwnedSemaphorePermit,
}

impl WaitingList {
    pub(super) fn new(places: usize) -> Self {
        let free = || Arc::new(Semaphore::new(places));
        Self {
            queued: Mutex::default(),
            high: free(),
            normal: free(),
            waiting_for_place: AtomicUsize::new(0),
            arrivals: Notify::new(),
            serving: watch::Sender::new(None),
        }
    }

    /// Removes and returns the next request to serve; waits for one to arrive.
    ///
    /// # Cancel safety
    /// Safe: a removed request is returned without a further await, and [`Notify`] stores the
    /// permit of an arrival. There must be one consumer only.
    pub(super) async fn next(&self) -> ServedSender {
        loop {
            let next = self.queued.lock().pop();
            match next {
                Some(request) => return request.served,
                None => self.arrivals.notified().await,
            }
        }
    }

    /// Returns the number of requests with a place.
    pub(super) fn waiting(&self) -> usize {
        self.queued.lock().len()
    }

    /// Returns the number of requests that wait for a place.
    pub(super) fn waiting_for_place(&self) -> usize {
        self.waiting_for_place.load(Ordering::Relaxed)
    }

    /// Acquires a place in the queue; returns `None` if there is none until `until`. Waiters get
    /// places in FIFO order.
    ///
    /// # Errors
    /// [`QueueFull`] if the options do not allow waiting.
    ///
    /// # Cancel safety
    /// Safe: a dropped future stops waiting, and frees a place that it acquired.
    pub(super) async fn place(
        &self,
        options: &QueueOptions,
        until: Instant,
    ) -> Result<Option<OwnedSemaphorePermit>, QueueFull> {
        let places = match options.priority.unwrap_or_default() {
            Priority::High => &self.high,
            Priority::Normal => &self.normal,
        };
        match (places.clone().try_acquire_owned(), options.when_full) {
            (Ok(place), _) => Ok(Some(place)),
            (Err(_), WhenFull::Fail | WhenFull::Reject) => Err(QueueFull),
            (Err(_), WhenFull::Wait | WhenFull::WaitFor(_)) => {
                let _counted = WaitingForPlace::of(self);
                let place = timeout_at(until, places.clone().acquire_owned()).await;
                Ok(place.ok().and_then(Result::ok))
            }
        }
    }

    /// Joins the queue behind the requests of its priority.
    pub(super) fn join(
        self: &Arc<Self>,
        priority: Priority,
        served: ServedSender,
        place: OwnedSemaphorePermit,
    ) -> Membership {
        let number = self.queued.lock().join(priority, QueuedRequest { served, _place: place });
        self.arrivals.notify_one();
        Membership { list: self.clone(), number }
    }
}

/// Counts a request that waits for a place.
#[derive(Debug)]
struct WaitingForPlace<'a>(&'a AtomicUsize);

impl<'a> WaitingForPlace<'a> {
    fn of(list: &'a WaitingList) -> Self {
        list.waiting_for_place.fetch_add(1, Ordering::Relaxed);
        Self(&list.waiting_for_place)
    }
}

impl Drop for WaitingForPlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Membership in the queue; leaves it on drop.
#[derive(Debug)]
pub(super) struct Membership {
    list: Arc<WaitingList>,
    number: Number,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let left = self.list.queued.lock().leave(self.number);
        // After the mutex is unlocked: a freed place wakes a waiter.
        drop(left);
    }
}
