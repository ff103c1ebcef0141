//! `queue`: a bounded queue in this process, and one consumer per key.
//!
//! # Guarantee
//! Of all requests that *this process* serves, one at a time holds a key; the others are served by
//! priority ([`super::priority`]), then in FIFO order. Up to [`PLACES`] per priority wait for a
//! key. [`WhenFull`] decides about further ones, as in Java's `BlockingQueue`; [`Wait::Try`] is a
//! rendezvous, which stores nothing.
//!
//! # Breaks when
//! There is a second replica: two consumers are two writers. (It would hold if each item were
//! always routed to the same replica.) Waiting requests are lost if the process dies.
//!
//! # Seen in the wild
//! Actors, `GenServer`s, a consumer group of one; right until the deployment says `replicas: 2`, or
//! keeps the old replica running for a moment during a rollout.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::line::{Done, Line, Ticket};
use super::priority::Priority;
use crate::lock::guard::Held;
use crate::lock::redis::unix_ms;
use crate::lock::{Error, Guard, LockKey, Wait};

/// Default capacity of a queue, per priority. (High priority has places of its own, so that waiting
/// buyers cannot keep out the restock they wait for.)
pub const PLACES: usize = 1_024;

/// The behaviour of a full queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// `add`: fails with [`Error::Full`].
    #[default]
    Fail,
    /// `offer`: rejects with a value, [`crate::lock::Outcome::Busy`].
    Refuse,
    /// `put`: waits for a place until the request's deadline.
    Wait,
    /// `offer` with a timeout: waits for a place this long; without one, as long as a request waits
    /// for any lock ([`crate::lock::Settings::timeout`]).
    WaitFor(Option<Duration>),
}

/// The options of a request that joins a queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Behaviour if the queue is full.
    pub when_full: WhenFull,
    /// Defaults to [`Priority::Normal`].
    pub priority: Option<Priority>,
    /// Capacity per priority, [`PLACES`] by default. Applies if the request creates the key's
    /// queue; an existing queue keeps its capacity.
    pub places: Option<usize>,
}

impl Manner {
    /// Returns the time limits of a request that may wait for a lock until `until` and ends at
    /// `deadline`.
    #[must_use]
    pub fn limits(&self, deadline: Instant, until: Instant) -> Limits {
        let place = match self.when_full {
            WhenFull::Wait => deadline,
            WhenFull::WaitFor(Some(time)) => deadline.min(Instant::now() + time),
            WhenFull::WaitFor(None) | WhenFull::Fail | WhenFull::Refuse => until,
        };
        Limits { place, turn: until.max(place) }
    }
}

/// The time limits of a request's two waits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Latest time to get a place in the queue.
    pub place: Instant,
    /// Latest time to be served.
    pub turn: Instant,
}

/// A snapshot of one queue.
#[derive(Debug, Clone)]
pub struct Look {
    /// Key of the queue.
    pub key: LockKey,
    /// Start of the current request's use of the key, in milliseconds of Unix time; `None` while
    /// the key is free.
    pub served_since_ms: Option<i64>,
    /// Number of requests in the queue.
    pub inside: usize,
    /// Number of requests that wait for a place in the queue.
    pub outside: usize,
}

/// Serves one request after the other, until the queue is dropped.
async fn consumer(line: Arc<Line>, door: flume::Receiver<Ticket>) {
    loop {
        // The rendezvous first: its sender has seen an empty queue.
        let ticket = tokio::select! {
            biased;
            handed = door.recv_async() => match handed {
                Ok(ticket) => ticket,
                Err(flume::RecvError::Disconnected) => return,
            },
            ticket = line.next() => ticket,
        };
        line.serving.send_replace(Some(unix_ms()));
        let (done, is_done) = oneshot::channel();
        // Skips a request that was cancelled.
        if ticket.send(done).is_ok() {
            let _ = is_done.await;
        }
        line.serving.send_replace(None);
    }
}

/// A queue and the rendezvous channel to its consumer, which ends with the channel.
#[derive(Debug)]
struct House {
    line: Arc<Line>,
    door: flume::Sender<Ticket>,
}

impl House {
    /// Offers the ticket to an idle consumer (rendezvous). Returns `false` at once if a request is
    /// being served or waits.
    ///
    /// # Cancel safety
    /// Safe: a ticket that was not accepted is not sent, and a consumer that accepted it detects
    /// that the request was cancelled.
    async fn hand_over(&self, ticket: Ticket, until: Instant) -> bool {
        if self.line.waiting() > 0 {
            return false;
        }
        let mut serving = self.line.serving.subscribe();
        tokio::select! {
            biased;
            // Waits, because a consumer that was just spawned is not receiving yet.
            taken = timeout_at(until, self.door.send_async(ticket)) => matches!(taken, Ok(Ok(()))),
            _ = serving.wait_for(Option::is_some) => false,
        }
    }
}

type Map = Mutex<HashMap<LockKey, Weak<House>>>;

/// The queues of this process, one per key that is held or waited for.
#[derive(Debug, Clone)]
pub struct Queues {
    map: Arc<Map>,
    runtime: Handle,
}

impl Queues {
    /// Creates an empty set. Its consumers run on `runtime`.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { map: Arc::default(), runtime }
    }

    /// Acquires `key`, waiting in its queue; returns `None` if a time limit passes first. With
    /// [`Wait::Try`] it does not wait: the request is served now or not at all.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no place and the options do not allow waiting.
    ///
    /// # Cancel safety
    /// Safe: a dropped future leaves the queue, and its place is free at once.
    pub async fn acquire(
        &self,
        key: LockKey,
        wait: Wait,
        manner: &Manner,
        limits: Limits,
    ) -> Result<Option<Guard>, Error> {
        let (ticket, my_turn) = oneshot::channel();
        let guest = self.guest(&key, manner.places.unwrap_or(PLACES));
        let Some(house) = guest.house.as_ref() else { return Ok(None) };
        let standing = match wait {
            Wait::Try => {
                if !house.hand_over(ticket, limits.turn).await {
                    return Ok(None);
                }
                None
            }
            Wait::Retry | Wait::Notify => {
                let Some(place) = house.line.a_place(manner, limits.place).await? else {
                    return Ok(None);
                };
                Some(house.line.join(manner.priority.unwrap_or_default(), ticket, place))
            }
        };
        let turn = timeout_at(limits.turn, my_turn).await;
        drop(standing);
        match turn {
            Ok(Ok(done)) => {
                Ok(Some(Guard::new(key, Held::Queue(Turn { _done: done, _guest: guest }))))
            }
            _ => Ok(None),
        }
    }

    /// Returns the start of the current request's use of `key`, in milliseconds of Unix time.
    #[must_use]
    pub fn served_since_ms(&self, key: &LockKey) -> Option<i64> {
        let map = self.map.lock();
        *map.get(key)?.upgrade()?.line.serving.borrow()
    }

    /// Returns a snapshot of each queue, sorted by key.
    #[must_use]
    pub fn look(&self) -> Vec<Look> {
        let look = |(key, house): (&LockKey, &Weak<House>)| {
            let house = house.upgrade()?;
            Some(Look {
                key: key.clone(),
                served_since_ms: *house.line.serving.borrow(),
                inside: house.line.waiting(),
                outside: house.line.outside(),
            })
        };
        // Under the lock of the map: a snapshot must not own the last reference to a queue.
        let mut looks: Vec<Look> = self.map.lock().iter().filter_map(look).collect();
        looks.sort_by(|one, other| one.key.cmp(&other.key));
        looks
    }

    /// Returns whether no key uses memory.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.lock().is_empty()
    }

    /// Returns a reference to the key's queue; creates the queue and its consumer if there is none.
    fn guest(&self, key: &LockKey, places: usize) -> Guest {
        let mut map = self.map.lock();
        let house = map.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (door, at_door) = flume::bounded(0);
            let house = Arc::new(House { line: Arc::new(Line::new(places)), door });
            self.runtime.spawn(consumer(house.line.clone(), at_door));
            map.insert(key.clone(), Arc::downgrade(&house));
            house
        });
        Guest { map: self.map.clone(), key: key.clone(), house: Some(house) }
    }
}

/// The exclusive use of a key, until it is dropped. The field order matters: the use ends before
/// the reference checks whether it was the last one.
#[derive(Debug)]
pub struct Turn {
    _done: Done,
    _guest: Guest,
}

/// A reference to the queue by a request; the last one removes the key and ends the consumer.
#[derive(Debug)]
struct Guest {
    map: Arc<Map>,
    key: LockKey,
    house: Option<Arc<House>>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut map = self.map.lock();
        drop(self.house.take());
        if map.get(&self.key).is_some_and(|house| house.strong_count() == 0) {
            map.remove(&self.key);
        }
    }
}
