//! `queue`: a bounded queue in this process, and one consumer per key.
//!
//! # Guarantee
//! Of all requests that *this process* serves, one at a time has its turn with a key, by priority
//! ([`super::priority`]), then in the order of arrival. [`PLACES`] wait for a key. [`WhenFull`]
//! says what happens to one more, as in Java's `BlockingQueue`; [`Wait::Try`] is a rendezvous,
//! which stores nothing.
//!
//! # Breaks when
//! There is a second replica: two consumers are two writers. (It would hold if each item were
//! always sent to the same replica.) What waits in memory dies with the process.
//!
//! # Seen in the wild
//! Actors, `GenServer`s, a consumer group of one; right until the deployment says `replicas: 2`, or
//! keeps the old one alive for a moment during a roll-out.

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

/// How many of one priority may wait for one key. (What puts something back has places of its own:
/// a house full of buyers must not keep out what they wait for.)
pub const PLACES: usize = 1_024;

/// What becomes of an offer to a house that is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// `add`: it fails, with [`Error::Full`].
    #[default]
    Fail,
    /// `offer`: it is refused, with a value: [`crate::lock::Outcome::Busy`].
    Refuse,
    /// `put`: it waits for a place, for as long as the caller lives.
    Wait,
    /// `offer` with a time: it waits for a place for so long; without a time, for as long as
    /// anybody waits for any lock ([`crate::lock::Settings::timeout`]).
    WaitFor(Option<Duration>),
}

/// How one joins a queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// What to do when it is full.
    pub when_full: WhenFull,
    /// Who goes first; [`Priority::Normal`] if not said.
    pub priority: Option<Priority>,
    /// How many places the house has, if not [`PLACES`]: the word of whoever comes to a key that
    /// nobody wants; a house that stands is not rebuilt.
    pub places: Option<usize>,
}

impl Manner {
    /// Until when one waits who may wait for a lock until `until`, and lives until `deadline`.
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

/// Until when one waits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For a place.
    pub place: Instant,
    /// For one's turn.
    pub turn: Instant,
}

/// How one line stands, at this moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// What they wait for.
    pub key: LockKey,
    /// Since when somebody has their turn, in milliseconds of Unix time.
    pub served_since_ms: Option<i64>,
    /// How many wait for their turn.
    pub inside: usize,
    /// How many wait for a place.
    pub outside: usize,
}

/// One after the other, for as long as anybody comes.
async fn consumer(line: Arc<Line>, door: flume::Receiver<Ticket>) {
    loop {
        // At the door first: whoever is there saw that nobody waits.
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
        // Who has gone meanwhile is passed over.
        if ticket.send(done).is_ok() {
            let _ = is_done.await;
        }
        line.serving.send_replace(None);
    }
}

/// A line, and the door to its consumer, which ends when the last one has gone.
#[derive(Debug)]
struct House {
    line: Arc<Line>,
    door: flume::Sender<Ticket>,
}

impl House {
    /// The rendezvous: hands the ticket over to a consumer that has nothing else to do. `false`,
    /// at once, when somebody is being served or waits to be.
    ///
    /// # Cancel safety
    /// Safe: what was not taken is not sent, and whoever took it sees that the waiter has gone.
    async fn hand_over(&self, ticket: Ticket, until: Instant) -> bool {
        if self.line.waiting() > 0 {
            return false;
        }
        let mut serving = self.line.serving.subscribe();
        tokio::select! {
            biased;
            // A consumer that was made just now is on its way to the door.
            taken = timeout_at(until, self.door.send_async(ticket)) => matches!(taken, Ok(Ok(()))),
            _ = serving.wait_for(Option::is_some) => false,
        }
    }
}

type Map = Mutex<HashMap<LockKey, Weak<House>>>;

/// The queues of this process. Only keys that somebody waits for have one.
#[derive(Debug, Clone)]
pub struct Queues {
    map: Arc<Map>,
    runtime: Handle,
}

impl Queues {
    /// No queues yet. Consumers will live on that runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { map: Arc::default(), runtime }
    }

    /// Waits in line for its turn; `None` when it was somebody else's for too long. With
    /// [`Wait::Try`] there is no waiting: it is handed over, or not.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no place, and the caller would not wait for one.
    ///
    /// # Cancel safety
    /// Safe: a waiter that is dropped leaves the line, and its place is free at once.
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

    /// Since when somebody has their turn with a key, in milliseconds of Unix time.
    #[must_use]
    pub fn served_since_ms(&self, key: &LockKey) -> Option<i64> {
        let map = self.map.lock();
        *map.get(key)?.upgrade()?.line.serving.borrow()
    }

    /// How all lines stand, by key.
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
        // Under the map's lock, so that nobody finds their house in our hands when they go.
        let mut looks: Vec<Look> = self.map.lock().iter().filter_map(look).collect();
        looks.sort_by(|one, other| one.key.cmp(&other.key));
        looks
    }

    /// Whether no key takes memory.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.lock().is_empty()
    }

    /// The key's house, built if there is none, with a consumer in it.
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

/// One's turn, until it is dropped. The fields' order matters: the turn is over before the guest
/// looks whether it was the last one.
#[derive(Debug)]
pub struct Turn {
    _done: Done,
    _guest: Guest,
}

/// Being in the house, or before it; the last one out removes the key and ends the consumer.
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
