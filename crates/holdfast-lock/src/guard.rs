//! Lock guards: proof in code that a lock was acquired.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::fenced::FencedGuard;
use crate::key::LockKey;
use crate::lease::LeaseRecord;
use crate::local::LocalGuard;
use crate::owner::OwnerLease;
use crate::quorum::QuorumLease;
use crate::result::{Error, Released};

/// A lock guard: an acquired lock.
///
/// Dropping a guard also releases the lock, but in the background (on the runtime of its
/// [`crate::Redis`]) and without a result: prefer [`Guard::release`].
///
/// Locks are not reentrant: nested work takes a reference to the guard, which proves that the lock
/// was acquired and cannot outlive it.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct Guard {
    key: LockKey,
    inner: GuardInner,
}

#[derive(Debug)]
pub(crate) enum GuardInner {
    Local(LocalGuard, LocalRecord),
    Owner(OwnerLease),
    Quorum(QuorumLease),
    Fenced(FencedGuard),
    Foreign(Box<dyn ForeignLease>),
}

/// A lock of another implementation. Dropping it must release the lock.
#[doc(hidden)]
pub trait ForeignLease: fmt::Debug + Send + Sync {
    /// Releases the lock and returns whether it was still held. A dropped future must have the
    /// effect of dropping the lease.
    fn release(self: Box<Self>) -> Pin<Box<dyn Future<Output = Released> + Send>>;

    /// Leaves the lock to expire; a lock without an expiry is released.
    fn leave_to_expire(self: Box<Self>);

    /// Returns the time until the lock expires; `None`, as here, if it does not, or this is not
    /// known.
    fn remaining(&self) -> Option<Duration> {
        None
    }
}

/// Records the end of a lock in this process with its guard.
#[derive(Debug)]
pub(crate) struct LocalRecord(pub LeaseRecord);

impl Drop for LocalRecord {
    fn drop(&mut self) {
        self.0.record_release(Released::Held);
    }
}

impl Guard {
    pub(crate) fn new(key: LockKey, inner: GuardInner) -> Self {
        Self { key, inner }
    }

    /// Creates the guard of a lock of another implementation.
    #[doc(hidden)]
    pub fn foreign(key: LockKey, lease: impl ForeignLease + 'static) -> Self {
        Self::new(key, GuardInner::Foreign(Box::new(lease)))
    }

    /// Returns the fenced guard, if the lock is fenced.
    #[must_use]
    pub fn as_fenced(&self) -> Option<&FencedGuard> {
        match &self.inner {
            GuardInner::Fenced(guard) => Some(guard),
            _ => None,
        }
    }

    /// Returns the time until the lease expires, by this machine's clock and without a call to
    /// Redis; zero after it has expired or was found lost. A renewal makes it longer. `None` for a
    /// lock that does not expire ([`crate::LockKind::Local`]).
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match &self.inner {
            GuardInner::Local(_, record) => record.0.remaining(),
            GuardInner::Owner(lease) => lease.record().and_then(LeaseRecord::remaining),
            GuardInner::Quorum(lease) => lease.record().and_then(LeaseRecord::remaining),
            GuardInner::Fenced(guard) => Some(guard.remaining()),
            GuardInner::Foreign(lease) => lease.remaining(),
        }
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Releases the lock and returns whether it was still held. Never releases the lock of another
    /// owner. If Redis does not respond within 0.8 s, the result is [`Released::Unknown`] and the
    /// lock ends with its lease. Dropping the future has the effect of dropping the guard.
    pub async fn release(self) -> Released {
        match self.inner {
            GuardInner::Local(guard, record) => {
                drop(guard);
                drop(record);
                Released::Held
            }
            GuardInner::Owner(lease) => lease.release().await,
            GuardInner::Quorum(lease) => lease.release().await,
            GuardInner::Fenced(guard) => guard.release().await,
            GuardInner::Foreign(lease) => lease.release().await,
        }
    }

    /// Leaves the lock to expire; a lock in this process is released.
    pub fn leave_to_expire(self) {
        match self.inner {
            GuardInner::Local(guard, _) => drop(guard),
            GuardInner::Owner(lease) => lease.leave_to_expire(),
            GuardInner::Quorum(lease) => lease.leave_to_expire(),
            GuardInner::Fenced(guard) => guard.leave_to_expire(),
            GuardInner::Foreign(lease) => lease.leave_to_expire(),
        }
    }
}

/// Several acquired locks, in the order of acquisition.
#[derive(Debug, Default)]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Adds a lock that was acquired after those that are there.
    #[doc(hidden)]
    pub fn push(&mut self, guard: Guard) {
        self.0.push(guard);
    }

    /// Returns whether there are no locks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the guard on `key`, if there is one, even if its lease has expired.
    #[must_use]
    pub fn get(&self, key: &LockKey) -> Option<&Guard> {
        self.0.iter().find(|guard| guard.key() == key)
    }

    /// Returns the fence of the lock on `key`, if it has one.
    #[must_use]
    pub fn fence(&self, key: &LockKey) -> Option<i64> {
        self.get(key)?.as_fenced().map(FencedGuard::fence)
    }

    /// Raises the fence of the lock on `key` as [`FencedGuard::raise_fence`]. Returns `None` if the
    /// lock is no longer held, or has no fence.
    pub async fn raise_fence(&mut self, key: &LockKey, floor: i64) -> Result<Option<i64>, Error> {
        let guard = self.0.iter_mut().find(|guard| guard.key() == key);
        match guard.map(|guard| &mut guard.inner) {
            Some(GuardInner::Fenced(guard)) => guard.raise_fence(floor).await,
            _ => Ok(None),
        }
    }

    /// Releases all locks, in reverse order. Returns `Held` only if all were still held, and
    /// `Unknown` as soon as Redis does not respond for one; the others are then released in the
    /// background, as they are if this future is dropped.
    pub async fn release(mut self) -> Released {
        let mut all = Released::Held;
        while let Some(guard) = self.0.pop() {
            match guard.release().await {
                Released::Held => {}
                Released::Lost => all = Released::Lost,
                // Avoids a timeout per key: dropping `self` releases the rest in the background.
                Released::Unknown => return Released::Unknown,
            }
        }
        all
    }

    /// Leaves all locks to expire: see [`Guard::leave_to_expire`].
    pub fn leave_to_expire(self) {
        for guard in self.0 {
            guard.leave_to_expire();
        }
    }
}
