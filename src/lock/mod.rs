//! Locks on keys: in this process ([`Kind::Local`]), across processes ([`Kind::Fenced`]), and the
//! teaching locks between them ([`ladder`]). A key is a string; the module knows nothing of the
//! shop.
//!
//! Guarantees: several keys are acquired in sorted order, all or none; a caller that stops waiting
//! leaves nothing locked; a Redis that does not respond is an [`Error`], never reported as *busy*.
//!
//! Does not guarantee that a lease is still held when the work ends: a lease of [`Kind::Owner`] has
//! no fence, and work that outlives it overlaps the work of the next holder. Nor that Redis keeps
//! its data: after a failover ([`redis`]) a lock may be free while a process still holds it.
//!
//! Tests: `tests/lock`; models of the protocol: `tests/model`.

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

/// Timing of the locks, and the location of their keys.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Start of every Redis key: `holdfast:`, except in tests, which share one Redis.
    pub prefix: String,
    /// Name of the replica, shown as the holder. Without a name, the first eight digits of the
    /// process's UUID are shown.
    pub name: Option<String>,
    /// Duration of a lease; the fenced lock has its own ([`fenced::Times`]).
    pub ttl: Duration,
    /// Mean pause between two attempts of a waiter; jitter varies it by up to half.
    pub retry: Duration,
    /// Maximum time to wait for a lock.
    pub timeout: Duration,
    /// Timing of the fenced lock.
    pub fenced: fenced::Times,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "holdfast:".to_owned(),
            name: None,
            // Longer than the longest request (8 s): no lease expires under a healthy holder.
            ttl: Duration::from_secs(10),
            retry: Duration::from_millis(50),
            timeout: Duration::from_secs(5),
            fenced: fenced::Times::default(),
        }
    }
}

/// Kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A FIFO mutex in this process.
    Local,
    /// A bounded queue in this process with one consumer per key.
    Queue,
    /// A lease in Redis with a common mistake.
    Rung(Rung),
    /// The textbook lease in Redis.
    Owner,
    /// The textbook lease, renewed while it is held.
    Watchdog,
    /// The textbook lease on a majority of several Redis servers.
    Quorum,
    /// The lock of this project: fenced, renewed, with handoff.
    Fenced,
}

/// Behaviour when the lock is held by another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Returns at once.
    Try,
    /// Polls until the timeout.
    Retry,
    /// Joins a queue and is handed the lock.
    Notify,
}

impl Wait {
    /// Returns the mode of that name, as in the header `Holdfast-Wait`.
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
    /// Returns whether the lock lives in Redis.
    #[must_use]
    pub fn needs_redis(self) -> bool {
        match self {
            Kind::Local | Kind::Queue => false,
            Kind::Rung(_) | Kind::Owner | Kind::Watchdog | Kind::Quorum | Kind::Fenced => true,
        }
    }

    /// Returns the wait modes of this lock; the first is its default.
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

/// The result of acquiring locks.
#[derive(Debug)]
pub enum Outcome {
    /// All keys are held.
    Acquired(Guards),
    /// A key is held by another owner, and the caller does not wait. Nothing is held.
    Busy(Holder),
    /// A key was held by another owner until the timeout. Nothing is held.
    TimedOut {
        /// Time waited.
        waited: Duration,
        /// The last holder, if known.
        holder: Holder,
    },
}

/// The holder of a lock, from the lock's value in Redis, for [`Kind::Quorum`] from the value on a
/// majority of the nodes. Unknown fields are `None`.
#[derive(Debug, Clone, Default)]
pub struct Holder {
    /// Name of its process ([`Settings::name`]).
    pub process: Option<String>,
    /// Time of acquisition, in milliseconds of Unix time.
    pub since_ms: Option<i64>,
    /// Time until the lease expires, unless it is renewed or released.
    pub remaining: Option<Duration>,
    /// First fence of the process's grant, if the lock has fences. After a local handoff, the
    /// current holder in that process has a later fence of the same grant.
    pub fence: Option<i64>,
}

/// A failure to acquire or keep a lock; contention is an [`Outcome`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Redis did not respond, or not in time. It is unknown whether the lock was acquired; what may
    /// have been acquired is being released.
    #[error("Redis does not answer: {0}")]
    Unavailable(#[from] Arc<::redis::RedisError>),
    /// The lease has expired.
    #[error("the lock was lost: its lease has run out")]
    Lost,
    /// No quorum nodes are configured.
    #[error("no quorum is configured; set REDLOCK_URLS")]
    NoQuorum,
    /// The key's queue in this process is full.
    #[error("the queue is full")]
    Full,
    /// The key is empty or blank: all callers would share one lock.
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

/// A request for locks.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The kind of lock.
    pub kind: Kind,
    /// Behaviour when a key is held by another owner.
    pub wait: Wait,
    /// Duration of the lease; defaults to the settings'.
    pub ttl: Option<Duration>,
    /// The caller's own deadline, at which waiting ends at the latest.
    pub deadline: Instant,
    /// The keys, in any order; duplicates are allowed.
    pub keys: &'a [LockKey],
}

impl Locks {
    /// Creates the locks of one process on `redis`; each call creates another process identity.
    /// Must be called on the main runtime. Redis need not be reachable yet.
    #[must_use]
    pub fn new(redis: Redis, settings: Settings) -> Self {
        let process = Process::new(settings.name.as_deref());
        let (prefix, times) = (&settings.prefix, settings.fenced.clone());
        let fenced = FencedLocks::new(redis.clone(), prefix, times, &process);
        let local = local::LocalLocks::default();
        let queues = queue::Queues::new(redis.runtime().clone());
        Self { redis, process, local, queues, fenced, quorum: None, settings }
    }

    /// Configures [`Kind::Quorum`] on these nodes; without nodes it cannot be acquired.
    #[must_use]
    pub fn with_quorum(mut self, nodes: Vec<Redis>) -> Self {
        self.quorum = (!nodes.is_empty()).then(|| Quorum::new(nodes, self.process.clone()));
        self
    }

    /// Replaces [`Settings::timeout`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Returns whether that kind of lock is configured. Does not call Redis.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        kind != Kind::Quorum || self.quorum.is_some()
    }

    /// Returns the Redis of the locks.
    #[must_use]
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Acquires all keys, in sorted order, or none.
    ///
    /// Waits for [`Settings::timeout`] at most, and not past the deadline of `ask`; looking up the
    /// holder of a key that was not acquired may take 0.8 s more. Callers that acquire several keys
    /// cannot deadlock, provided that none holds others already.
    ///
    /// Does not promise that the lock is still held when the caller continues: locks in Redis are
    /// leases. The order of waiters depends on the kind.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not respond, never reported as *busy*. What may have
    /// been acquired is being released, or ends with its lease. [`Error::NoQuorum`] without nodes.
    ///
    /// # Cancel safety
    /// Safe at every await: dropping the future releases what was acquired and what may have been
    /// acquired (`tests/lock/cancelled.rs`).
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<Outcome, Error> {
        self.acquire_in_line(ask, &Manner::default(), &Probe::Off).await
    }

    /// Acquires like [`Locks::acquire`], with options for joining the queue (`manner`, for
    /// [`Kind::Queue`] only) and a probe: rungs that consist of several commands pass its points,
    /// on acquire and on release.
    ///
    /// # Errors
    /// As [`Locks::acquire`], with the same cancel safety. [`Error::Full`] with [`WhenFull::Fail`]
    /// only.
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

    /// Returns the state of this process's queues ([`Kind::Queue`]), by key.
    #[must_use]
    pub fn queues(&self) -> Vec<queue::Look> {
        self.queues.look()
    }

    /// Returns this process as the holder, with the start of the current turn ([`Kind::Queue`]).
    fn served_here(&self, key: &LockKey) -> Holder {
        Holder { since_ms: self.queues.served_since_ms(key), ..self.held_here() }
    }

    /// Returns this process as the holder; nothing else is known of a local lock.
    fn held_here(&self) -> Holder {
        let process = Some(self.process.name().to_owned());
        Holder { process, ..Holder::default() }
    }

    pub(in crate::lock) fn redis_key(&self, key: &LockKey) -> String {
        let plain = format!("{}lock:{key}", self.settings.prefix);
        // All keys of a lock begin with this one and must lie in one slot of a Cluster.
        match redis::hash_tag(plain.as_bytes()) {
            Some(_) => plain,
            None => format!("{}lock:{{{key}}}", self.settings.prefix),
        }
    }
}
