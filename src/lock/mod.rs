//! Locks on keys: in this process ([`Kind::Local`]) and across processes ([`Kind::Fenced`]), and
//! the whole ladder between ([`ladder`]).
//!
//! Guarantees: several keys are taken in sorted order, all or none; a caller that stops waiting
//! leaves nothing locked; Redis that does not answer is an [`Error`] and never looks like *busy*.
//!
//! Does not guarantee: that a lease is still held when the work is done. `Owner` is a lease with an
//! expiry and without a fence; work that outlives it runs beside the next holder. Nor that Redis
//! remembers: after a failover ([`redis`]) a lock may be free that somebody holds.
//!
//! The module knows Redis, the clock and the probe, but no item and no user: a key is a string.

#![warn(missing_docs)]

pub mod fenced;
pub mod guard;
pub mod inspect;
pub mod key;
pub mod key_locks;
pub mod ladder;
pub mod process;
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use fenced::FencedLocks;
use guard::Held;
pub use guard::{Guard, Guards, Released};
pub use key::LockKey;
pub use key_locks::{KeyLock, KeyLocks};
pub use ladder::priority::Priority;
pub use ladder::queue::{Manner, WhenFull};
use ladder::quorum::Quorum;
use ladder::rung::{self, Rung};
use ladder::watchdog::Renewed;
use ladder::{local, owner, queue};
use process::Process;
pub use redis::Redis;

use crate::probe::Probe;

/// The times of a lock, and where its keys live.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What every Redis key begins with; `holdfast:` but for tests, which share one Redis.
    pub prefix: String,
    /// What people call this process: its replica's name. Without one, holders are told apart by
    /// the digits of their process's number.
    pub name: Option<String>,
    /// How long a lease lives if nobody gives it back.
    pub ttl: Duration,
    /// Pause between two attempts of a waiter; half of it is jitter.
    pub retry: Duration,
    /// How long a waiter tries.
    pub timeout: Duration,
    /// How the fenced lock keeps time.
    pub fenced: fenced::Times,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "holdfast:".to_owned(),
            name: None,
            // Longer than the longest request (8 s): in a healthy shop no lease is outlived.
            ttl: Duration::from_secs(10),
            retry: Duration::from_millis(50),
            timeout: Duration::from_secs(5),
            fenced: fenced::Times::default(),
        }
    }
}

/// Who is kept apart from whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A first-come-first-served mutex in this process.
    Local,
    /// A bounded queue in this process, and one consumer per key.
    Queue,
    /// A lease in Redis as people write it before they know better.
    Rung(Rung),
    /// The textbook lease in Redis.
    Owner,
    /// The same, renewed while it is held.
    Watchdog,
    /// The textbook lease on a majority of several Redis.
    Quorum,
    /// The lock of this project: fenced, renewed, handed on.
    Fenced,
}

/// What to do when the lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Give up at once.
    Try,
    /// Ask again every so often.
    Retry,
    /// Queue, and be handed the lock.
    Notify,
}

impl Wait {
    /// The mode of that name, as in the header `Holdfast-Wait`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "try" => Some(Wait::Try),
            "retry" => Some(Wait::Retry),
            "notify" => Some(Wait::Notify),
            _ => None,
        }
    }
}

impl Kind {
    /// Whether it lives in Redis.
    #[must_use]
    pub fn needs_redis(self) -> bool {
        match self {
            Kind::Local | Kind::Queue => false,
            Kind::Rung(_) | Kind::Owner | Kind::Watchdog | Kind::Quorum | Kind::Fenced => true,
        }
    }

    /// The waiting modes of this lock; the first is its default.
    #[must_use]
    pub fn waits(self) -> &'static [Wait] {
        match self {
            Kind::Local => &[Wait::Notify, Wait::Try],
            Kind::Queue => &[Wait::Notify, Wait::Try],
            Kind::Rung(_) | Kind::Owner | Kind::Watchdog | Kind::Quorum => {
                &[Wait::Retry, Wait::Try]
            }
            Kind::Fenced => &[Wait::Notify, Wait::Try],
        }
    }
}

/// What came of asking for a lock.
#[derive(Debug)]
pub enum Outcome {
    /// All keys are held.
    Acquired(Guards),
    /// One key is somebody else's, and the caller did not want to wait. Nothing is held.
    Busy(Holder),
    /// One key stayed somebody else's for as long as the caller was ready to wait. Nothing is held.
    TimedOut {
        /// How long was waited.
        waited: Duration,
        /// Who held it at the end, if it is known.
        holder: Holder,
    },
}

/// What is known of whoever holds a lock: by its value in Redis, and for [`Kind::Quorum`] by what
/// more than half of the nodes say. All is unknown when they do not answer.
#[derive(Debug, Clone, Default)]
pub struct Holder {
    /// In which process, by its name ([`Settings::name`]).
    pub process: Option<String>,
    /// Since when, in milliseconds of Unix time.
    pub since_ms: Option<i64>,
    /// When the lease ends if nobody renews it or gives it back.
    pub remaining: Option<Duration>,
    /// Under which fence, where the lock has one: the first of its process's grant. Whoever has the
    /// lock now may have a later one of it, passed on inside that process.
    pub fence: Option<i64>,
}

/// Why a lock could not even be asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Redis did not answer, or not in time. Whether the lock was taken is unknown; it is being
    /// given back.
    #[error("Redis does not answer: {0}")]
    Unavailable(#[from] Arc<::redis::RedisError>),
    /// The lease has run out.
    #[error("the lock was lost: its lease has run out")]
    Lost,
    /// There are no nodes to have a majority of.
    #[error("no quorum is configured; set REDLOCK_URLS")]
    NoQuorum,
    /// So many wait in this process that one more would not be served in time.
    #[error("the queue is full")]
    Full,
    /// The key is empty or blank: everybody would wait for everybody.
    #[error("a lock's key must not be blank")]
    BlankKey,
}

impl From<::redis::RedisError> for Error {
    fn from(error: ::redis::RedisError) -> Self {
        Error::Unavailable(Arc::new(error))
    }
}

/// All locks of one process.
#[derive(Debug, Clone)]
pub struct Locks {
    redis: Redis,
    process: Process,
    local: local::LocalLocks,
    queues: queue::Queues,
    fenced: FencedLocks,
    quorum: Option<Quorum>,
    settings: Settings,
}

/// What to take, and how.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Which lock.
    pub kind: Kind,
    /// What to do when it is taken.
    pub wait: Wait,
    /// The lease's time, if not the one of the settings.
    pub ttl: Option<Duration>,
    /// When the caller's own time is up; waiting ends then at the latest.
    pub deadline: Instant,
    /// The keys, in any order, doubles allowed.
    pub keys: &'a [LockKey],
}

impl Locks {
    /// Locks of one process over this Redis: each call makes another process of them. Must be
    /// called on the main runtime. Redis need not be there yet.
    #[must_use]
    pub fn new(redis: Redis, settings: Settings) -> Self {
        let process = Process::new(settings.name.as_deref());
        let (prefix, times) = (&settings.prefix, settings.fenced.clone());
        let fenced = FencedLocks::new(redis.clone(), prefix, times, &process);
        let local = local::LocalLocks::default();
        let queues = queue::Queues::new(redis.runtime().clone());
        Self { redis, process, local, queues, fenced, quorum: None, settings }
    }

    /// The same locks, and [`Kind::Quorum`] over those nodes; without any, it is refused.
    #[must_use]
    pub fn with_quorum(mut self, nodes: Vec<Redis>) -> Self {
        self.quorum = (!nodes.is_empty()).then(|| Quorum::new(nodes, self.process.clone()));
        self
    }

    /// The same locks for somebody who may wait for so long.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Whether that kind of lock can be taken here. Asks nobody.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        kind != Kind::Quorum || self.quorum.is_some()
    }

    /// The Redis under the locks.
    #[must_use]
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The times and the prefix.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes all keys, in sorted order, or none.
    ///
    /// Waits no longer than [`Settings::timeout`] and the ask's own deadline; looking up who holds
    /// a key that was not had may take 0.8 s more. Two callers that take several keys each can't
    /// wait for each other in a circle, as long as neither holds others already.
    ///
    /// Does not promise that the lock is still held when the caller goes on: every kind but `Local`
    /// is a lease. In which order waiters are served is the kind's.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not answer: never mistaken for *busy*. What may have
    /// been taken is being given back, or ends with its lease. [`Error::NoQuorum`] without nodes.
    ///
    /// # Cancel safety
    /// Safe at every await: dropping the future gives back what was taken, and what may have been
    /// taken. (`tests/lock/cancelled.rs` drops it at each.)
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<Outcome, Error> {
        self.acquire_in_line(ask, &Manner::default(), &Probe::Off).await
    }

    /// The same for somebody who says how they join the line, where there is one
    /// ([`Kind::Queue`]; elsewhere the manner means nothing), and who is watched: the rungs that
    /// are no single command pass points of the probe, here and when they give back.
    ///
    /// # Errors
    /// As [`Locks::acquire`], and as safe to drop. [`Error::Full`] with [`WhenFull::Fail`] only.
    pub async fn acquire_in_line(
        &self,
        ask: Ask<'_>,
        manner: &Manner,
        probe: &Probe,
    ) -> Result<Outcome, Error> {
        let started = Instant::now();
        let until = ask.deadline.min(started + self.settings.timeout);
        let mut keys = ask.keys.to_vec();
        keys.sort();
        keys.dedup();

        let mut guards = Guards::default();
        for key in keys {
            let queue = (ask.kind == Kind::Queue).then(|| key.clone());
            let no = match self.acquire_one(key, &ask, manner, probe, until).await {
                Ok(Ok(guard)) => {
                    guards.push(guard);
                    continue;
                }
                Ok(Err(holder)) if ask.wait == Wait::Try => Outcome::Busy(holder),
                Ok(Err(holder)) => Outcome::TimedOut { waited: started.elapsed(), holder },
                Err(Error::Full) if manner.when_full == WhenFull::Refuse => {
                    Outcome::Busy(queue.map_or_else(Holder::default, |key| self.served_here(&key)))
                }
                Err(error) => return Err(error),
            };
            guards.release().await;
            return Ok(no);
        }
        Ok(Outcome::Acquired(guards))
    }

    async fn acquire_one(
        &self,
        key: LockKey,
        ask: &Ask<'_>,
        manner: &Manner,
        probe: &Probe,
        until: Instant,
    ) -> Result<Result<Guard, Holder>, Error> {
        let redis_key = self.redis_key(&key);
        match ask.kind {
            Kind::Local => {
                let guard = self.local.acquire(key, ask.wait, until).await;
                Ok(guard.ok_or(self.held_here()))
            }
            Kind::Queue => {
                let limits = manner.limits(ask.deadline, until);
                let guard = self.queues.acquire(key.clone(), ask.wait, manner, limits).await?;
                Ok(guard.ok_or_else(|| self.served_here(&key)))
            }
            Kind::Rung(rung) => {
                let asking = rung::Asking {
                    rung,
                    redis: &self.redis,
                    process: &self.process,
                    redis_key: &redis_key,
                    name: &key,
                    ttl: ask.ttl.unwrap_or(self.settings.ttl),
                    retry: self.settings.retry,
                    probe,
                };
                match asking.acquire(ask.wait, until).await? {
                    Some(lease) => Ok(Ok(Guard::new(key, Held::Rung(lease)))),
                    None => Ok(Err(inspect::holder(&self.redis, &redis_key).await?)),
                }
            }
            Kind::Owner | Kind::Watchdog => {
                let ttl = ask.ttl.unwrap_or(self.settings.ttl);
                let lock = owner::Lock {
                    redis: &self.redis,
                    process: &self.process,
                    redis_key: redis_key.clone(),
                    ttl,
                    retry: self.settings.retry,
                };
                match lock.acquire(ask.wait, until).await? {
                    Some(lease) if ask.kind == Kind::Watchdog => {
                        Ok(Ok(Guard::new(key, Held::Watchdog(Renewed::new(lease, ttl)))))
                    }
                    Some(lease) => Ok(Ok(Guard::new(key, Held::Owner(lease)))),
                    None => Ok(Err(inspect::holder(&self.redis, &redis_key).await?)),
                }
            }
            Kind::Quorum => {
                let Some(quorum) = &self.quorum else { return Err(Error::NoQuorum) };
                let (ttl, retry) = (ask.ttl.unwrap_or(self.settings.ttl), self.settings.retry);
                match quorum.acquire(&redis_key, ttl, retry, ask.wait, until).await? {
                    Some(lease) => Ok(Ok(Guard::new(key, Held::Quorum(lease)))),
                    None => Ok(Err(quorum.holder(&redis_key).await)),
                }
            }
            Kind::Fenced => {
                let asking = fenced::Asking { wait: ask.wait, ttl: ask.ttl, until };
                self.fenced.acquire(key, redis_key, asking).await
            }
        }
    }

    /// How the queues of this process stand ([`Kind::Queue`]), by key.
    #[must_use]
    pub fn queues(&self) -> Vec<queue::Look> {
        self.queues.look()
    }

    /// What is known of whoever has their turn in this process.
    fn served_here(&self, key: &LockKey) -> Holder {
        Holder { since_ms: self.queues.served_since_ms(key), ..self.held_here() }
    }

    /// All that is known of whoever holds a lock in this process.
    fn held_here(&self) -> Holder {
        let process = Some(self.process.name().to_owned());
        Holder { process, ..Holder::default() }
    }

    pub(in crate::lock) fn redis_key(&self, key: &LockKey) -> String {
        let plain = format!("{}lock:{key}", self.settings.prefix);
        // Whatever belongs to one lock begins with its key, and must lie in one slot of a Cluster.
        match redis::hash_tag(plain.as_bytes()) {
            Some(_) => plain,
            None => format!("{}lock:{{{key}}}", self.settings.prefix),
        }
    }
}
