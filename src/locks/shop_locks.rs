//! Acquires locks by any mechanism: those of `holdfast-lock`, the teaching locks and the queue.

use std::time::Duration;

use holdfast_lock::inspect::HeldLock;
use holdfast_lock::locks::sorted;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Error, Guard, Guards, Holder, LockKey};
use holdfast_lock::{LockKind, Locks, ProbeFailure, Redis, Settings, Wait};
use tokio::time::Instant;

use super::commands::LockCommands;
use super::queue::{KeyQueues, QueueSnapshot};
use super::teaching_lock::{TeachingLease, TeachingLock};
use super::waiting_list::{QueueOptions, WhenFull};
use crate::probe::Probe;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Lock(LockKind),
    Teaching(TeachingLock),
    /// A bounded queue in this process with one consumer per key.
    Queue,
}

impl Mechanism {
    pub fn needs_redis(self) -> bool {
        match self {
            Mechanism::Lock(kind) => kind.needs_redis(),
            Mechanism::Teaching(_) => true,
            Mechanism::Queue => false,
        }
    }

    pub fn wait_modes(self) -> &'static [Wait] {
        match self {
            Mechanism::Lock(kind) => kind.wait_modes(),
            Mechanism::Teaching(_) => LockKind::Owner.wait_modes(),
            Mechanism::Queue => LockKind::Local.wait_modes(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    pub mechanism: Mechanism,
    pub wait: Wait,
    pub ttl: Option<Duration>,
    /// The caller's own deadline, at which waiting ends at the latest.
    pub deadline: Instant,
    pub keys: &'a [LockKey],
    /// For [`Mechanism::Queue`].
    pub queue: QueueOptions,
    /// Probe whose points a teaching lock passes, on acquire and on release.
    pub probe: &'a Probe,
}

#[derive(Debug, Clone)]
pub struct ShopLocks {
    leases: Locks,
    nodes: Vec<Redis>,
    queues: KeyQueues,
}

impl ShopLocks {
    /// Creates the locks of one process: see [`Locks::new`]. `quorum` are the nodes of
    /// [`LockKind::Quorum`].
    pub fn new(redis: Redis, quorum: Vec<Redis>, settings: Settings) -> Result<Self, Error> {
        let queues = KeyQueues::new(redis.runtime().clone());
        let leases = Locks::new(redis, settings)?.with_quorum(quorum.clone());
        Ok(Self { leases, nodes: quorum, queues })
    }

    pub fn with_acquire_timeout(self, timeout: Duration) -> Self {
        Self { leases: self.leases.with_acquire_timeout(timeout), ..self }
    }

    pub fn with_max_hold(self, max_hold: Duration) -> Self {
        Self { leases: self.leases.with_max_hold(max_hold), ..self }
    }

    pub fn leases(&self) -> &Locks {
        &self.leases
    }

    pub fn redis(&self) -> &Redis {
        self.leases.redis()
    }

    pub fn servers(&self, mechanism: Mechanism) -> Vec<Redis> {
        match mechanism {
            Mechanism::Lock(LockKind::Quorum) => self.nodes.clone(),
            mechanism if mechanism.needs_redis() => vec![self.redis().clone()],
            _ => Vec::new(),
        }
    }

    pub fn is_configured(&self, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::Lock(kind) => self.leases.is_configured(kind),
            Mechanism::Teaching(_) | Mechanism::Queue => true,
        }
    }

    /// Checks that locks of that mechanism, and those of idempotency keys beside them, can be
    /// acquired: see [`Locks::probe`].
    pub async fn probe(&self, mechanism: Mechanism) -> Result<(), ProbeFailure> {
        self.leases.probe(LockKind::Fenced).await?;
        match mechanism {
            Mechanism::Lock(LockKind::Quorum) => self.leases.probe(LockKind::Quorum).await,
            _ => Ok(()),
        }
    }

    /// Acquires all keys, in sorted order, or none: as [`Locks::acquire`], with the same errors and
    /// cancel safety. A teaching lock does not bound its waiters, and is not refused a further key
    /// for lack of time; nor is the queue, whose bound is [`Error::QueueFull`] with
    /// [`WhenFull::Fail`].
    pub async fn acquire(&self, request: LockRequest<'_>) -> Result<AcquireOutcome, Error> {
        let LockRequest { mechanism, wait, ttl, deadline, keys, .. } = request;
        if let Mechanism::Lock(kind) = mechanism {
            let request = AcquireRequest { kind, wait, ttl, deadline, keys };
            return self.leases.acquire(request).await;
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
                Err(Error::QueueFull(_)) if request.queue.when_full == WhenFull::Reject => {
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
    ) -> Result<Result<Guard, Holder>, Error> {
        let LockRequest { wait, queue, probe, .. } = *request;
        if let Mechanism::Teaching(kind) = request.mechanism {
            let ttl = request.ttl.unwrap_or(self.leases.settings().ttl);
            let lock = LockCommands::new(&self.leases, key, ttl, probe);
            return Ok(
                match TeachingLease::acquire(kind, lock, &self.leases, wait, until).await? {
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

    pub fn queues(&self) -> Vec<QueueSnapshot> {
        self.queues.snapshots()
    }

    /// Returns all held locks, sorted by key, including those of idempotency keys: see
    /// [`Locks::held_locks`].
    pub async fn held_locks(&self) -> Result<Vec<HeldLock>, Error> {
        self.leases.held_locks().await
    }

    fn served_here(&self, key: &LockKey) -> Holder {
        let mut holder = self.leases.as_holder();
        holder.since_ms = self.queues.served_since_ms(key);
        holder
    }
}
