//! `queue`: a bounded queue in this process, and one consumer per key.
//!
//! # Guarantee
//! Of all requests that *this process* serves, one at a time holds a key; the others are served by
//! priority ([`super::priority`]), then in FIFO order. Up to [`DEFAULT_CAPACITY`] per priority wait
//! for a key. [`super::WhenFull`] decides about further ones, as in Java's `BlockingQueue`;
//! [`Wait::Try`] is a rendezvous: the idle consumer takes the request, or none does.
//!
//! # Breaks when
//! There is a second replica: two consumers are two writers. Waiting requests are lost if the
//! process dies.
//!
//! # Seen in the wild
//! Actors, `GenServer`s, a consumer group of one; right until the deployment says `replicas: 2`, or
//! keeps the old replica running for a moment during a rollout.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use holdfast_lock::{Error, ForeignLease, LockKey, Released, Wait};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::waiting_list::{
    DEFAULT_CAPACITY, DoneSender, QueueDeadlines, QueueOptions, WaitingList,
};

#[derive(Debug, Clone)]
pub struct QueueSnapshot {
    pub key: LockKey,
    /// Start of the current request's use of the key, in milliseconds of Unix time; `None` while it
    /// is free.
    pub served_since_ms: Option<i64>,
    pub waiting: usize,
    pub waiting_for_place: usize,
}

async fn consume(waiting: Arc<WaitingList>) {
    loop {
        let request = waiting.next().await;
        let (done, is_done) = oneshot::channel();
        // Skips a request that was cancelled.
        if request.send(done).is_ok() {
            let _ = is_done.await;
        }
    }
}

#[derive(Debug)]
struct KeyQueue {
    waiting: Arc<WaitingList>,
    _consumer: AbortOnDropHandle<()>,
}

type QueueMap = Mutex<HashMap<LockKey, Weak<KeyQueue>>>;

#[derive(Debug, Clone, Default)]
pub struct KeyQueues {
    map: Arc<QueueMap>,
}

impl KeyQueues {
    /// Acquires `key`, waiting in its queue; returns `None` if a time limit passes first. With
    /// [`Wait::Try`], or without time to wait, the request is served now or not at all. Fails if
    /// there is no place and the options do not allow waiting. A dropped future leaves the queue,
    /// and its place is free at once.
    pub async fn acquire(
        &self,
        key: &LockKey,
        wait: Wait,
        options: &QueueOptions,
        deadlines: QueueDeadlines,
    ) -> Result<Option<QueueGuard>, Error> {
        let (sender, served) = oneshot::channel();
        let queue_ref = self.queue_of(key, options.capacity.unwrap_or(DEFAULT_CAPACITY));
        let Some(queue) = queue_ref.queue.as_ref() else { return Ok(None) };

        let is_try = wait == Wait::Try || deadlines.service <= Instant::now();
        let place = if is_try {
            None
        } else {
            let placed = queue.waiting.place(options, deadlines.place).await;
            let Some(place) = placed.map_err(|_| Error::QueueFull(key.clone()))? else {
                return Ok(None);
            };
            Some(place)
        };

        // On drop it leaves the queue, so that a cancelled request keeps no place.
        let priority = options.priority.unwrap_or_default();
        let Some(_membership) = queue.waiting.join(priority, sender, place) else {
            return Ok(None);
        };

        let served = if is_try {
            // The consumer is idle, so this waits no longer than until it runs.
            served.await.ok()
        } else {
            timeout_at(deadlines.service, served).await.ok().and_then(Result::ok)
        };
        Ok(served.map(|done| QueueGuard { _done: done, _queue: queue_ref }))
    }

    pub fn served_since_ms(&self, key: &LockKey) -> Option<i64> {
        let map = self.map.lock();
        map.get(key)?.upgrade()?.waiting.served_since_ms()
    }

    pub fn snapshots(&self) -> Vec<QueueSnapshot> {
        let mut snapshots = Vec::new();
        // Under the lock of the map: a snapshot must not own the last reference to a queue.
        for (key, queue) in self.map.lock().iter() {
            let Some(queue) = queue.upgrade() else { continue };
            snapshots.push(QueueSnapshot {
                key: key.clone(),
                served_since_ms: queue.waiting.served_since_ms(),
                waiting: queue.waiting.waiting(),
                waiting_for_place: queue.waiting.waiting_for_place(),
            });
        }
        snapshots.sort_by(|one, other| one.key.cmp(&other.key));
        snapshots
    }

    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.map.lock().is_empty()
    }

    fn queue_of(&self, key: &LockKey, capacity: usize) -> QueueRef {
        let mut map = self.map.lock();
        let queue = map.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let waiting = Arc::new(WaitingList::new(capacity));
            let consumer = tokio::spawn(consume(waiting.clone()));
            let queue = Arc::new(KeyQueue { waiting, _consumer: AbortOnDropHandle::new(consumer) });
            map.insert(key.clone(), Arc::downgrade(&queue));
            queue
        });
        QueueRef { map: self.map.clone(), key: key.clone(), queue: Some(queue) }
    }
}

/// The exclusive use of a key, until it is dropped. The field order matters: the use ends before
/// the reference checks whether it was the last one.
#[derive(Debug)]
pub struct QueueGuard {
    _done: DoneSender,
    _queue: QueueRef,
}

impl ForeignLease for QueueGuard {
    fn release(self: Box<Self>) -> Pin<Box<dyn Future<Output = Released> + Send>> {
        drop(self);
        Box::pin(std::future::ready(Released::Held))
    }

    /// Releases the key: its use has no expiry.
    fn leave_to_expire(self: Box<Self>) {}
}

#[derive(Debug)]
struct QueueRef {
    map: Arc<QueueMap>,
    key: LockKey,
    queue: Option<Arc<KeyQueue>>,
}

impl Drop for QueueRef {
    fn drop(&mut self) {
        let mut map = self.map.lock();
        // Under the lock of the map: of two last references, one sees the other's gone.
        drop(self.queue.take());
        if map.get(&self.key).is_some_and(|queue| queue.strong_count() == 0) {
            map.remove(&self.key);
        }
    }
}
