//! Acquires locks by any mechanism: those of `holdfast-lock`, the teaching locks and the queue.

use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_lock::inspect::HeldLock;
use holdfast_lock::locks::sorted;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Error, Guard, Guards, Holder, LockKey};
use holdfast_lock::{LockKind, Locks, ProbeFailure, Redis, Settings, Wait};
use tokio::time::Instant;

use super::commands::LockCommands;
use super::queue::{KeyQueues, QueueSnapshot};
use super::queue_options::{QueueFull, QueueOptions, WhenFull};
use super::teaching_lock::{TeachingCommands, TeachingLease};
use super::{check_then_del, expire_only, setnx, setnx_expire, ttl};
use crate::probe::Probe;

/// The lock of a strategy: what excludes other holders of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// A mutex in this process.
    Local,
    /// Teaching lock: `SETNX`, `DEL`.
    Setnx,
    /// Teaching lock: `SETNX`, `EXPIRE`, `DEL`.
    SetnxExpire,
    /// Teaching lock: `SET NX PX`, `DEL`.
    Ttl,
    /// Teaching lock: `SET NX PX`, `GET`, `DEL`.
    CheckThenDel,
    /// Teaching lock: `SET NX PX`.
    ExpireOnly,
    /// The textbook lease in Redis.
    Owner,
    /// The textbook lease, renewed.
    Watchdog,
    /// The textbook lease on a majority of several Redis servers, renewed.
    Redlock,
    /// The lock of `holdfast-lock`: fenced, renewed, with queue and handoff.
    Fenced,
    /// A bounded queue in this process with one consumer per key.
    Queue,
}

/// What executes a mechanism.
enum Implementation {
    Lock(LockKind),
    Teaching(&'static TeachingCommands),
    Queue,
}

/// The commands of a teaching lock, in the file of that name.
macro_rules! teaching {
    ($file:ident, deletes: $deletes:literal) => {{
        static COMMANDS: TeachingCommands = TeachingCommands {
            acquire: |lock| $file::acquire(lock).boxed(),
            release: |lock| $file::release(lock).boxed(),
            deletes: $deletes,
        };
        Implementation::Teaching(&COMMANDS)
    }};
}

impl Mechanism {
    fn implementation(self) -> Implementation {
        match self {
            Mechanism::Local => Implementation::Lock(LockKind::Local),
            Mechanism::Setnx => teaching!(setnx, deletes: true),
            Mechanism::SetnxExpire => teaching!(setnx_expire, deletes: true),
            Mechanism::Ttl => teaching!(ttl, deletes: true),
            Mechanism::CheckThenDel => teaching!(check_then_del, deletes: true),
            Mechanism::ExpireOnly => teaching!(expire_only, deletes: false),
            Mechanism::Owner => Implementation::Lock(LockKind::Owner),
            Mechanism::Watchdog => Implementation::Lock(LockKind::Watchdog),
            Mechanism::Redlock => Implementation::Lock(LockKind::Quorum),
            Mechanism::Fenced => Implementation::Lock(LockKind::Fenced),
            Mechanism::Queue => Implementation::Queue,
        }
    }

    /// Returns whether it has a mistake on purpose.
    #[must_use]
    pub fn is_teaching_lock(self) -> bool {
        matches!(self.implementation(), Implementation::Teaching(_))
    }

    #[must_use]
    pub fn needs_redis(self) -> bool {
        !matches!(self, Mechanism::Local | Mechanism::Queue)
    }

    /// Returns the wait modes; the first is the default.
    #[must_use]
    pub fn wait_modes(self) -> &'static [Wait] {
        match self.implementation() {
            Implementation::Lock(kind) => kind.wait_modes(),
            Implementation::Teaching(_) => LockKind::Owner.wait_modes(),
            Implementation::Queue => LockKind::Local.wait_modes(),
        }
    }
}

/// A request for locks.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    pub mechanism: Mechanism,
    /// Behaviour when a key is held by another owner.
    pub wait: Wait,
    /// Duration of the lease; defaults to the settings'.
    pub ttl: Option<Duration>,
    /// The caller's own deadline, at which waiting ends at the latest.
    pub deadline: Instant,
    /// The keys, in any order; duplicates are allowed.
    pub keys: &'a [LockKey],
    /// For [`Mechanism::Queue`] only.
    pub queue: QueueOptions,
    /// Probe whose points a teaching lock passes, on acquire and on release.
    pub probe: &'a Probe,
}

/// A failure to acquire locks; contention is an [`AcquireOutcome`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    Lock(#[from] Error),
    /// The key's queue is full ([`WhenFull::Fail`]).
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
}

/// All locks of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ShopLocks {
    leases: Locks,
    /// The nodes of [`Mechanism::Redlock`].
    nodes: Vec<Redis>,
    queues: KeyQueues,
}

impl ShopLocks {
    /// Creates the locks of one process: see [`Locks::new`]. `quorum` are the nodes of
    /// [`Mechanism::Redlock`].
    pub fn new(redis: Redis, quorum: Vec<Redis>, settings: Settings) -> Result<Self, Error> {
        let queues = KeyQueues::new(redis.runtime().clone());
        let leases = Locks::new(redis, settings)?.with_quorum(quorum.clone());
        Ok(Self { leases, nodes: quorum, queues })
    }

    #[must_use]
    pub fn with_acquire_timeout(self, timeout: Duration) -> Self {
        Self { leases: self.leases.with_acquire_timeout(timeout), ..self }
    }

    /// Renews leases for `max_hold` at most.
    #[must_use]
    pub fn with_max_hold(self, max_hold: Duration) -> Self {
        Self { leases: self.leases.with_max_hold(max_hold), ..self }
    }

    /// Returns the locks of the crate `holdfast-lock`.
    #[must_use]
    pub fn leases(&self) -> &Locks {
        &self.leases
    }

    #[must_use]
    pub fn redis(&self) -> &Redis {
        self.leases.redis()
    }

    /// Returns the servers on which that mechanism holds its locks.
    #[must_use]
    pub fn servers(&self, mechanism: Mechanism) -> Vec<Redis> {
        match mechanism {
            Mechanism::Redlock => self.nodes.clone(),
            mechanism if mechanism.needs_redis() => vec![self.redis().clone()],
            _ => Vec::new(),
        }
    }

    /// Returns whether that mechanism is configured. Does not call Redis.
    #[must_use]
    pub fn is_configured(&self, mechanism: Mechanism) -> bool {
        mechanism != Mechanism::Redlock || self.leases.is_configured(LockKind::Quorum)
    }

    /// Checks that locks of that mechanism, and those of idempotency keys beside them, can be
    /// acquired: see [`Locks::probe`].
    pub async fn probe(&self, mechanism: Mechanism) -> Result<(), ProbeFailure> {
        self.leases.probe(LockKind::Fenced).await?;
        match mechanism {
            Mechanism::Redlock => self.leases.probe(LockKind::Quorum).await,
            _ => Ok(()),
        }
    }

    /// Acquires all keys, in sorted order, or none: as [`Locks::acquire`], with the same errors and
    /// cancel safety. A teaching lock does not bound its waiters, and is not refused a further key
    /// for lack of time; nor is the queue, whose bound is [`LockError::QueueFull`] with
    /// [`WhenFull::Fail`].
    pub async fn acquire(&self, request: LockRequest<'_>) -> Result<AcquireOutcome, LockError> {
        let LockRequest { mechanism, wait, ttl, deadline, keys, .. } = request;
        if let Implementation::Lock(kind) = mechanism.implementation() {
            let request = AcquireRequest { kind, wait, ttl, deadline, keys };
            return Ok(self.leases.acquire(request).await?);
        }
        let started = Instant::now();
        let until = deadline.min(started + self.leases.settings().acquire_timeout);
        let mut guards = Guards::default();
        for key in sorted(keys) {
            let (holder, waits) = match self.acquire_one(&key, &request, until).await {
                Ok(Ok(guard)) => {
                    guards.push(guard);
                    continue;
                }
                Ok(Err(holder)) => (holder, wait != Wait::Try),
                Err(LockError::QueueFull(_)) if request.queue.when_full == WhenFull::Reject => {
                    (self.served_here(&key), false)
                }
                Err(error) => return Err(error),
            };
            guards.release().await;
            let waited = started.elapsed();
            return Ok(if waits {
                AcquireOutcome::TimedOut { waited, holder }
            } else {
                AcquireOutcome::Busy(holder)
            });
        }
        Ok(AcquireOutcome::Acquired(guards))
    }

    async fn acquire_one(
        &self,
        key: &LockKey,
        request: &LockRequest<'_>,
        until: Instant,
    ) -> Result<Result<Guard, Holder>, LockError> {
        let LockRequest { wait, queue, probe, .. } = *request;
        if let Implementation::Teaching(commands) = request.mechanism.implementation() {
            let ttl = request.ttl.unwrap_or(self.leases.settings().ttl);
            let lock = LockCommands::new(&self.leases, key, ttl, probe);
            return Ok(
                match TeachingLease::acquire(commands, lock, &self.leases, wait, until).await? {
                    Some(lease) => Ok(Guard::foreign(key.clone(), lease)),
                    None => Err(self.leases.holder(key).await?),
                },
            );
        }
        let deadlines = queue.deadlines(request.deadline, until);
        let guard = self.queues.acquire(key, wait, &queue, deadlines).await?;
        Ok(match guard {
            Some(guard) => Ok(Guard::foreign(key.clone(), guard)),
            None => Err(self.served_here(key)),
        })
    }

    /// Returns a snapshot of the queues of this process ([`Mechanism::Queue`]), sorted by key.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueSnapshot> {
        self.queues.snapshots()
    }

    /// Returns all held locks, sorted by key, including those of idempotency keys: see
    /// [`Locks::held_locks`].
    pub async fn held_locks(&self) -> Result<Vec<HeldLock>, Error> {
        self.leases.held_locks().await
    }

    /// Returns this process as the holder, with the start of the current use of the key.
    fn served_here(&self, key: &LockKey) -> Holder {
        let mut holder = self.leases.as_holder();
        holder.since_ms = self.queues.served_since_ms(key);
        holder
    }
}
