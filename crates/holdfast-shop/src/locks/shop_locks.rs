//! Acquires any lock of the shop, by the provider that the table names.

use std::time::Duration;

use holdfast_lock::inspect::HeldLock;
use holdfast_lock::sorted;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Error, Guard, Guards, Holder, LockKey};
use holdfast_lock::{LockKind, Locks, ProbeFailure, Redis, Settings, Wait};
use tokio::time::Instant;

use super::commands::LockCommands;
use super::lock::{Lock, Provider};
use super::queue_lock::{KeyQueues, QueueSnapshot};
use super::teaching_lock::{TeachingLease, TeachingLock};
use super::waiting_list::{QueueOptions, WhenFull};
use crate::probe::Probe;

#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    pub lock: Lock,
    pub wait: Wait,
    /// Interval of [`Wait::Retry`]; defaults to the settings'.
    pub retry: Option<Duration>,
    pub ttl: Option<Duration>,
    /// Time for which the lock is renewed; defaults to the settings'.
    pub max_hold: Option<Duration>,
    /// The caller's own deadline, at which waiting ends at the latest.
    pub deadline: Instant,
    pub keys: &'a [LockKey],
    /// For [`Lock::Queue`].
    pub queue: QueueOptions,
    /// Probe whose points a teaching lock passes, on acquire and on release.
    pub probe: &'a Probe,
    /// True if the holder executes commands of other replicas: see
    /// [`AcquireRequest::takes_mail`].
    pub takes_mail: bool,
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
        let leases = Locks::new(redis, settings)?.with_quorum(quorum.clone());
        Ok(Self { leases, nodes: quorum, queues: KeyQueues::default() })
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

    pub fn servers(&self, lock: Lock) -> Vec<Redis> {
        match lock {
            Lock::Redlock => self.nodes.clone(),
            lock if lock.needs_redis() => vec![self.redis().clone()],
            _ => Vec::new(),
        }
    }

    pub fn is_configured(&self, lock: Lock) -> bool {
        match lock.provider() {
            Provider::Library(kind) => self.leases.is_configured(kind),
            Provider::Teaching(_) | Provider::Queue => true,
        }
    }

    /// Checks that such locks, and those of idempotency keys beside them, can be acquired: see
    /// [`Locks::probe`].
    pub async fn probe(&self, lock: Lock) -> Result<(), ProbeFailure> {
        self.leases.probe(LockKind::Fenced).await?;
        match lock {
            Lock::Redlock => self.leases.probe(LockKind::Quorum).await,
            _ => Ok(()),
        }
    }

    /// Acquires all keys, in sorted order, or none: as [`Locks::acquire`], with the same errors and
    /// cancel safety. A teaching lock does not bound its waiters, and is not refused a further key
    /// for lack of time; nor is the queue, whose bound is [`Error::QueueFull`] with
    /// [`WhenFull::Fail`].
    pub async fn acquire(&self, request: LockRequest<'_>) -> Result<AcquireOutcome, Error> {
        let LockRequest { lock, wait, retry, ttl, max_hold, deadline, keys, takes_mail, .. } =
            request;
        let leases = match (retry, max_hold) {
            (None, None) => &self.leases,
            _ => &self.leases_with(retry, max_hold),
        };

        let provider = lock.provider();
        if let Provider::Library(kind) = provider {
            let mut request =
                AcquireRequest::new(kind, keys).with_wait(wait).with_deadline(deadline);
            request.ttl = ttl;
            request.takes_mail = takes_mail;
            return leases.acquire(request).await;
        }

        let started = Instant::now();
        let until = deadline.min(started + self.leases.settings().acquire_timeout);
        let mut guards = Guards::default();
        // Sorted, so that two requests with the same keys do not wait for each other.
        for key in sorted(keys) {
            let acquired = match provider {
                Provider::Teaching(kind) => {
                    acquire_teaching(leases, kind, &key, &request, until).await
                }
                _ => self.acquire_in_queue(&key, &request, until).await,
            };

            let (holder, waits) = match acquired {
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

            // All or none: a request that waits again must not keep others from what it has.
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

    /// Returns the locks with other settings, where they are given.
    fn leases_with(&self, retry: Option<Duration>, max_hold: Option<Duration>) -> Locks {
        let mut leases = self.leases.clone();
        if let Some(interval) = retry {
            leases = leases.with_retry_interval(interval);
        }
        if let Some(max_hold) = max_hold {
            leases = leases.with_max_hold(max_hold);
        }
        leases
    }

    async fn acquire_in_queue(
        &self,
        key: &LockKey,
        request: &LockRequest<'_>,
        until: Instant,
    ) -> Result<Result<Guard, Holder>, Error> {
        let deadlines = request.queue.deadlines(request.deadline, until);
        let guard = self.queues.acquire(key, request.wait, &request.queue, deadlines).await?;
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

async fn acquire_teaching(
    leases: &Locks,
    kind: TeachingLock,
    key: &LockKey,
    request: &LockRequest<'_>,
    until: Instant,
) -> Result<Result<Guard, Holder>, Error> {
    let ttl = request.ttl.unwrap_or(leases.settings().ttl);
    let commands = LockCommands::new(leases, key, ttl, request.probe);
    let lease = TeachingLease::acquire(kind, commands, leases, request.wait, until).await?;

    match lease {
        Some(lease) => Ok(Ok(Guard::foreign(key.clone(), lease))),
        None => Ok(Err(leases.holder(key).await?)),
    }
}
