//! All locks of one process, and how they are acquired.

use std::time::Duration;

use crate::Wait;
use crate::clock::{after, monotonic_us};
use crate::fenced::{FencedGuard, FencedLocks};
use crate::guard::{GuardInner, LocalRecord};
use crate::idempotency_locks::REDIS_KEY_PREFIX;
use crate::inspect::{self, HeldLock};
use crate::kind::PollingRequest;
use crate::lease::{LeaseRecord, Leases, NEVER_US, all_of};
use crate::local::LocalLocks;
use crate::owner::OwnerLease;
use crate::process::ProcessIdentity;
use crate::quorum::Quorum;
use crate::redis::escape_pattern;
use crate::settings::check_ttl;
use crate::time::Instant;
use crate::waiters::Waiters;
use crate::{
    Error, Guard, Guards, Holder, LockKey, LockKind, ProbeFailure, Redis, Released, Settings,
};

/// Least time to wait for each key after the first: no one waits for a caller that cannot use it.
const MIN_TIME_FOR_NEXT_KEY: Duration = Duration::from_millis(300);

/// The result of acquiring locks.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireOutcome {
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

/// All locks of one process. Cheap to clone; clones share one identity.
#[derive(Debug, Clone)]
pub struct Locks {
    redis: Redis,
    pub(crate) process: ProcessIdentity,
    local: LocalLocks,
    pub(crate) fenced: FencedLocks,
    quorum: Option<Quorum>,
    waiters: Waiters,
    pub(crate) leases: Leases,
    settings: Settings,
}

/// A request for locks. Made by [`AcquireRequest::new`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AcquireRequest<'a> {
    /// The kind of lock.
    pub kind: LockKind,
    /// Behaviour when a key is held by another owner.
    pub wait: Wait,
    /// Duration of the lease, 10 ms to 24 h; defaults to the settings'.
    pub ttl: Option<Duration>,
    /// The caller's own deadline, at which waiting ends at the latest. `None` leaves it to
    /// [`Settings::acquire_timeout`].
    pub deadline: Option<Instant>,
    /// The keys, in any order; duplicates are allowed.
    pub keys: &'a [LockKey],
    /// Whether the holder does what others send to it ([`Locks::send_to_holder`]): the id of a
    /// fenced lock's lease says so ([`crate::LeaseId::takes_mail`]).
    #[doc(hidden)]
    pub takes_mail: bool,
}

impl<'a> AcquireRequest<'a> {
    /// Creates a request that waits as is usual for the kind: in a queue, or polling.
    #[must_use]
    pub fn new(kind: LockKind, keys: &'a [LockKey]) -> Self {
        let wait = kind.wait_modes()[0];
        Self { kind, wait, ttl: None, deadline: None, keys, takes_mail: false }
    }

    /// Replaces [`AcquireRequest::wait`].
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Replaces [`AcquireRequest::ttl`].
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Replaces [`AcquireRequest::deadline`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

impl Locks {
    /// Creates the locks of one process on `redis`, which need not be reachable yet. Each call
    /// creates another process identity.
    ///
    /// # Errors
    /// [`Error::InvalidSettings`] if a setting is out of its range.
    pub fn new(redis: Redis, settings: Settings) -> Result<Self, Error> {
        settings.validate()?;
        let process = ProcessIdentity::new(settings.name.as_deref());
        let leases = Leases::new(settings.observer.clone());
        let fenced = FencedLocks::new(redis.clone(), &settings, &process, leases.clone());
        let local = LocalLocks::default();
        let waiters = Waiters::default();
        Ok(Self { redis, process, local, fenced, quorum: None, waiters, leases, settings })
    }

    /// Configures [`LockKind::Quorum`] on these nodes; without nodes it cannot be acquired.
    #[must_use]
    pub fn with_quorum(mut self, nodes: Vec<Redis>) -> Self {
        self.quorum = (!nodes.is_empty()).then(|| Quorum::new(nodes, self.process.clone()));
        self
    }

    /// Replaces [`Settings::acquire_timeout`].
    #[must_use]
    pub fn with_acquire_timeout(mut self, timeout: Duration) -> Self {
        self.settings.acquire_timeout = timeout;
        self
    }

    /// Replaces [`Settings::retry_interval`].
    #[must_use]
    pub fn with_retry_interval(mut self, interval: Duration) -> Self {
        self.settings.retry_interval = interval;
        self
    }

    /// Replaces [`Settings::max_hold`].
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.max_hold = Some(max_hold);
        self
    }

    /// Returns whether that kind of lock is configured.
    #[must_use]
    pub fn is_configured(&self, kind: LockKind) -> bool {
        kind != LockKind::Quorum || self.quorum.is_some()
    }

    /// Returns the Redis of the locks.
    #[must_use]
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Returns a value that is unique to one acquisition, with the name of this process.
    #[doc(hidden)]
    #[must_use]
    pub fn new_owner(&self) -> String {
        self.process.new_owner()
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Acquires the fenced lock on `key`, in the order of its queue. Cancel safe.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after [`Settings::acquire_timeout`], and those of [`Locks::acquire`].
    pub async fn lock(&self, key: &LockKey) -> Result<FencedGuard, Error> {
        self.lock_for(key, self.settings.acquire_timeout).await
    }

    /// Acquires the fenced lock on `key` as [`Locks::lock`], waiting for `timeout` at most instead
    /// of [`Settings::acquire_timeout`]. With zero it tries once; with [`Duration::MAX`] it waits
    /// without end. Cancel safe.
    ///
    /// # Errors
    /// [`Error::TimedOut`], with the holder, after `timeout`, and those of [`Locks::acquire`].
    pub async fn lock_for(&self, key: &LockKey, timeout: Duration) -> Result<FencedGuard, Error> {
        let started = Instant::now();
        let _place = self.waiters.join(key)?;
        let acquired = self.acquire_fenced(key, Wait::Notify, after(started, timeout)).await?;

        acquired.map_err(|holder| Error::TimedOut {
            waited: started.elapsed(),
            holder: Box::new(holder),
        })
    }

    /// Acquires the fenced lock on `key` if it is free and has no waiters. Returns `None` if
    /// another owner has it, in this process or another; [`Locks::holder`] says which. Takes as
    /// long as one or two calls to Redis, 1.6 s at most. Cancel safe.
    ///
    /// # Errors
    /// Those of Redis: see [`Locks::acquire`].
    pub async fn try_lock(&self, key: &LockKey) -> Result<Option<FencedGuard>, Error> {
        let acquired = self.acquire_fenced(key, Wait::Try, Instant::now()).await?;
        Ok(acquired.ok())
    }

    async fn acquire_fenced(
        &self,
        key: &LockKey,
        wait: Wait,
        until: Instant,
    ) -> Result<Result<FencedGuard, Holder>, Error> {
        let redis_key = self.redis_key(key);
        let ttl = self.settings.fenced.ttl;
        let max_hold = self.settings.max_hold;
        let acquiring = self.fenced.acquire(&redis_key, ttl, max_hold, wait, until, false);
        self.leases.unless_closed(acquiring).await
    }

    /// Ends all acquisitions with [`Error::Closed`], releases what this process holds in Redis, and
    /// waits for the releases of guards that were dropped: a process that ends right after a drop
    /// leaves the lock to expire. Clones of these locks are closed too. Repeating it is safe.
    ///
    /// Locks are released even if their guards exist, which are then no longer held: call it when
    /// the work under them has ended, or when a fence rejects what it still writes. Locks in this
    /// process and idempotency locks end with their guards.
    ///
    /// Returns [`Released::Held`] if all locks were held until now, [`Released::Lost`] if the lease
    /// of one had expired, and [`Released::Unknown`] if Redis did not confirm one, which ends with
    /// its lease. Takes as long as a release, about 2 s at most.
    ///
    /// # Cancel safety
    /// Nothing is acquired any more; what is not released by then ends with its guard, or lease.
    pub async fn close(&self) -> Released {
        self.leases.end_acquisitions();
        let fenced = self.fenced.close().await;
        all_of([fenced, self.leases.close().await])
    }

    /// Acquires the fenced lock on `key`, runs `work` with its lease and releases the lock.
    ///
    /// `Ok` means that `work` ended before the lease did, by this machine's clock. When the lease
    /// is lost, `work` is dropped at its next await. What it has sent may still take effect: write
    /// [`FencedGuard::fence`] with the data.
    ///
    /// # Errors
    /// As [`Locks::lock`]; [`Error::Lost`] if the lease was lost before `work` ended.
    ///
    /// # Cancel safety
    /// As safe as `work`: the lock is released in the background.
    pub async fn with_lock<T>(
        &self,
        key: &LockKey,
        work: impl AsyncFnOnce(&FencedGuard) -> T,
    ) -> Result<T, Error> {
        let lease = self.lock(key).await?;
        let result = tokio::select! {
            biased;
            () = lease.wait_until_lost() => Err(Error::Lost),
            // A pause may have outlasted the lease between the two polls.
            result = work(&lease) => if lease.is_held() { Ok(result) } else { Err(Error::Lost) },
        };
        lease.release().await;
        result
    }

    /// Acquires all keys, in sorted order, or none.
    ///
    /// Waits for [`Settings::acquire_timeout`] at most, and not past the deadline of the request.
    /// Without time to wait it tries once. A call to Redis may take 0.8 s more, and looking up the
    /// holder another 0.8 s. Callers cannot deadlock, provided that none holds other keys already.
    /// With less than 0.3 s left (or half of a timeout below 0.6 s), the next key is not requested.
    ///
    /// # Errors
    /// Those of Redis, which are never reported as *busy*: [`Error::Unavailable`] when it does not
    /// respond, [`Error::Refused`] when it responds with an error, and behind sentinels
    /// [`Error::InvalidAddress`], if they do not know the primary's name.
    /// [`Error::QueueFull`] at once if [`crate::MAX_WAITERS`] callers wait for a key.
    /// [`Error::NoQuorum`] without nodes. [`Error::InvalidSettings`] for a TTL out of its range.
    ///
    /// # Cancel safety
    /// Safe at every await, and after an error: what was or may have been acquired is released in
    /// the background.
    pub async fn acquire(&self, request: AcquireRequest<'_>) -> Result<AcquireOutcome, Error> {
        request.ttl.map_or(Ok(()), check_ttl)?;
        let started = Instant::now();
        let timeout = after(started, self.settings.acquire_timeout);
        let until = request.deadline.map_or(timeout, |deadline| deadline.min(timeout));
        let waits = request.wait != Wait::Try;

        let mut guards = Guards::default();
        // In one order everywhere: two callers never hold what the other one waits for.
        for key in sorted(request.keys) {
            let acquired = if !waits || guards.is_empty() || has_time_for_next_key(started, until) {
                self.acquire_one(key, &request, until).await?
            } else {
                Err(Holder::default())
            };

            match acquired {
                Ok(guard) => guards.push(guard),
                Err(holder) => {
                    guards.release().await;
                    let waited = started.elapsed();
                    return Ok(if waits {
                        AcquireOutcome::TimedOut { waited, holder }
                    } else {
                        AcquireOutcome::Busy(holder)
                    });
                }
            }
        }
        Ok(AcquireOutcome::Acquired(guards))
    }

    async fn acquire_one(
        &self,
        key: LockKey,
        request: &AcquireRequest<'_>,
        until: Instant,
    ) -> Result<Result<Guard, Holder>, Error> {
        let redis_key = self.redis_key(&key);
        let default_ttl = match request.kind {
            LockKind::Fenced => self.settings.fenced.ttl,
            _ => self.settings.ttl,
        };
        let polling = PollingRequest {
            kind: request.kind,
            asked_us: monotonic_us(),
            leases: &self.leases,
            redis_key: &redis_key,
            ttl: request.ttl.unwrap_or(default_ttl),
            max_hold: self.settings.max_hold,
            wait: request.wait,
            until,
            interval: self.settings.retry_interval,
            takes_mail: request.takes_mail,
        };

        let waits = request.wait != Wait::Try;
        let place = waits.then(|| self.waiters.join(&key)).transpose()?;
        let acquired = self.leases.unless_closed(self.acquire_kind(&key, polling)).await?;
        drop(place);
        Ok(acquired.map(|inner| Guard::new(key, inner)))
    }

    async fn acquire_kind(
        &self,
        key: &LockKey,
        request: PollingRequest<'_>,
    ) -> Result<Result<GuardInner, Holder>, Error> {
        let PollingRequest { kind, redis_key, ttl, max_hold, wait, until, .. } = request;
        Ok(match kind {
            LockKind::Local => match self.local.acquire(key, wait, until).await {
                Some(guard) => {
                    let PollingRequest { asked_us, leases, .. } = request;
                    let record = LeaseRecord::new(leases, kind, asked_us, NEVER_US);
                    Ok(GuardInner::Local(guard, LocalRecord(record)))
                }
                None => Err(self.as_holder()),
            },
            LockKind::Owner | LockKind::Watchdog => {
                match OwnerLease::acquire(&self.redis, &self.process, request).await? {
                    Some(lease) => Ok(GuardInner::Owner(lease)),
                    None => Err(inspect::holder(&self.redis, redis_key).await?),
                }
            }
            LockKind::Quorum => {
                let quorum = self.quorum.as_ref().ok_or(Error::NoQuorum)?;
                match quorum.acquire(request).await? {
                    Some(lease) => Ok(GuardInner::Quorum(lease)),
                    None => Err(quorum.holder(redis_key).await),
                }
            }
            LockKind::Fenced => {
                let takes_mail = request.takes_mail;
                let acquiring =
                    self.fenced.acquire(redis_key, ttl, max_hold, wait, until, takes_mail);
                acquiring.await?.map(GuardInner::Fenced)
            }
        })
    }

    /// Checks that locks of that kind can be acquired and waiters notified: does what they do, on
    /// keys of its own. In a Cluster this is done on each primary; of a quorum, a majority must do
    /// it. It leaves nothing in Redis.
    ///
    /// # Errors
    /// [`ProbeFailure::Locks`] with the error with which an acquisition would fail;
    /// [`ProbeFailure::Messages`] if only the message fails.
    pub async fn probe(&self, kind: LockKind) -> Result<(), ProbeFailure> {
        match (kind, &self.quorum) {
            (LockKind::Local, _) => Ok(()),
            (LockKind::Quorum, None) => Err(ProbeFailure::Locks(Error::NoQuorum)),
            (LockKind::Quorum, Some(quorum)) => {
                let key = format!("{}probe", self.settings.key_prefix);
                quorum.probe(&key).await.map_err(ProbeFailure::Locks)
            }
            _ => self.fenced.probe(&self.settings.key_prefix).await,
        }
    }

    /// Returns the holder of the lock on `key`, from its value in Redis; empty if it is free. Fails
    /// as [`Locks::acquire`].
    pub async fn holder(&self, key: &LockKey) -> Result<Holder, Error> {
        inspect::holder(&self.redis, &self.redis_key(key)).await
    }

    /// Deletes the lock on `key`, as if its lease had expired. For experiments and tests only.
    /// Fails as [`Locks::acquire`].
    pub async fn force_release(&self, key: &LockKey) -> Result<(), Error> {
        let mut delete = ::redis::cmd("DEL");
        delete.arg(self.redis_key(key));
        Ok(self.redis.send(delete).await?)
    }

    /// Returns all held locks and idempotency locks, sorted by key; about 1,000 of each at most.
    ///
    /// Not a consistent snapshot: a lock that is acquired or released during the call may be
    /// missing. Quorum locks live on their own nodes and are not included. Fails as
    /// [`Locks::acquire`].
    pub async fn held_locks(&self) -> Result<Vec<HeldLock>, Error> {
        let prefix = escape_pattern(&self.settings.key_prefix);
        let mut keys = Vec::new();
        for kind in ["lock:", REDIS_KEY_PREFIX] {
            keys.extend(self.redis.scan_locks(&format!("{prefix}{kind}*")).await?);
        }
        inspect::held_at(&self.redis, keys).await
    }

    /// Returns this process as the holder of a lock that does not live in Redis.
    #[doc(hidden)]
    #[must_use]
    pub fn as_holder(&self) -> Holder {
        let process = Some(self.process.name().to_owned());
        Holder { process, ..Holder::default() }
    }

    /// Returns the Redis key of the lock on `key`.
    #[must_use]
    pub fn redis_key(&self, key: &LockKey) -> String {
        format!("{}lock:{key}", self.settings.key_prefix)
    }
}

/// Returns whether a caller that waits from `started` until `until` may request a further key.
fn has_time_for_next_key(started: Instant, until: Instant) -> bool {
    let least = MIN_TIME_FOR_NEXT_KEY.min(until.saturating_duration_since(started) / 2);
    until.saturating_duration_since(Instant::now()) >= least
}

/// Returns the keys in the order of acquisition, each once.
#[doc(hidden)]
#[must_use]
pub fn sorted(keys: &[LockKey]) -> Vec<LockKey> {
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    keys
}
