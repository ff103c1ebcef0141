//! `queue`: a bounded queue in this process, and one consumer per key.
//!
//! # Guarantee
//! Of all requests that *this process* serves, one at a time has its turn with a key, in the order
//! in which they came. At most [`PLACES`] wait; who comes then is told so at once, instead of
//! waiting for a turn that comes too late. Nothing is locked: there is simply nobody else who
//! works.
//!
//! # Breaks when
//! There is a second replica. Each has its own consumer, and two consumers are two writers. (It
//! would hold if each item were always sent to the same replica, and none ever moved.)
//!
//! # Seen in the wild
//! Actors, `GenServer`s, a goroutine with a channel, “just put it in a queue” with a consumer group
//! of one; right until the deployment says `replicas: 2`, or keeps the old one alive for a moment
//! during a roll-out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender, WeakSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::lock::{Error, Guard, LockKey};

/// How many may wait for one key.
pub const PLACES: usize = 1_024;

/// A waiter, to be told that it is its turn.
type Ticket = oneshot::Sender<Done>;
/// Dropped by whoever has had its turn.
type Done = oneshot::Sender<()>;
type Map = Mutex<HashMap<LockKey, WeakSender<Ticket>>>;

/// One after the other, for as long as anybody comes.
async fn consumer(mut queue: Receiver<Ticket>) {
    while let Some(ticket) = queue.recv().await {
        let (done, is_done) = oneshot::channel();
        // Who has gone meanwhile is passed over.
        if ticket.send(done).is_ok() {
            let _ = is_done.await;
        }
    }
}

/// The queues of this process. Only keys that somebody waits for have one.
#[derive(Debug, Clone)]
pub struct Queues {
    map: Arc<Map>,
    places: usize,
    runtime: Handle,
}

impl Queues {
    /// No queues yet. Consumers will live on that runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { map: Arc::default(), places: PLACES, runtime }
    }

    /// Waits in line until `until`; `None` when it is still somebody else's turn then.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no place in the queue.
    ///
    /// # Cancel safety
    /// Safe: a waiter that is dropped is passed over.
    pub async fn acquire(&self, key: LockKey, until: Instant) -> Result<Option<Guard>, Error> {
        let (ticket, my_turn) = oneshot::channel();
        let place = self.place(&key);
        match place.queue.as_ref().map(|queue| queue.try_send(ticket)) {
            Some(Err(TrySendError::Full(_))) => return Err(Error::Full),
            // The runtime is ending.
            None | Some(Err(TrySendError::Closed(_))) => return Ok(None),
            Some(Ok(())) => {}
        }
        match timeout_at(until, my_turn).await {
            Ok(Ok(done)) => Ok(Some(Guard::queue(key, Turn { _done: done, _place: place }))),
            _ => Ok(None),
        }
    }

    /// The key's queue, with a consumer if it has none.
    fn place(&self, key: &LockKey) -> Place {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = map.get(key).and_then(WeakSender::upgrade).unwrap_or_else(|| {
            let (sender, queue) = mpsc::channel(self.places);
            self.runtime.spawn(consumer(queue));
            map.insert(key.clone(), sender.downgrade());
            sender
        });
        Place { map: self.map.clone(), key: key.clone(), queue: Some(queue) }
    }
}

/// One's turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _done: Done,
    _place: Place,
}

/// Standing in line, or having one's turn; the last one out takes the key off the map, and the
/// consumer ends.
#[derive(Debug)]
struct Place {
    map: Arc<Map>,
    key: LockKey,
    queue: Option<Sender<Ticket>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.queue.take());
        if map.get(&self.key).is_some_and(|queue| queue.strong_count() == 0) {
            map.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queues(places: usize) -> (Queues, LockKey, Instant) {
        let queues = Queues { places, ..Queues::new(Handle::current()) };
        let soon = Instant::now() + Duration::from_secs(5);
        (queues, LockKey::new("{sku:tea}").unwrap(), soon)
    }

    #[tokio::test]
    async fn turns_are_had_in_the_order_they_came_and_who_has_gone_is_passed_over() {
        let (queues, key, soon) = queues(8);
        let held = queues.acquire(key.clone(), soon).await.unwrap().unwrap();
        let mut waiting: Vec<_> =
            (0..3).map(|_| Box::pin(queues.acquire(key.clone(), soon))).collect();
        for waiter in &mut waiting {
            assert!(futures_util::poll!(waiter).is_pending());
        }
        drop(waiting.remove(1));
        drop(held);
        let last = waiting.pop().unwrap();
        let first = waiting.pop().unwrap().await.unwrap().unwrap();
        let mut last = Box::pin(last);
        assert!(futures_util::poll!(&mut last).is_pending(), "it is not its turn");
        drop(first);
        drop(last.await.unwrap().unwrap());
        assert!(queues.map.lock().unwrap().is_empty(), "a key nobody wants takes no memory");
    }

    #[tokio::test]
    async fn a_full_queue_says_so_at_once() {
        let (queues, key, soon) = queues(1);
        let held = queues.acquire(key.clone(), soon).await.unwrap().unwrap();
        let mut waits = Box::pin(queues.acquire(key.clone(), soon));
        assert!(futures_util::poll!(&mut waits).is_pending());
        assert!(matches!(queues.acquire(key, soon).await, Err(Error::Full)));
        drop(held);
        assert!(waits.await.unwrap().is_some());
    }

    #[tokio::test]
    async fn who_waited_in_vain_leaves_the_line() {
        let (queues, key, soon) = queues(4);
        let held = queues.acquire(key.clone(), soon).await.unwrap().unwrap();
        assert!(queues.acquire(key.clone(), Instant::now()).await.unwrap().is_none());
        drop(held);
        assert!(queues.acquire(key, soon).await.unwrap().is_some());
    }
}
