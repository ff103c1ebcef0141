//! Guards: proof in code that a lock was acquired.

use super::Error;
use super::fenced::FencedGuard;
use super::key::LockKey;
use super::ladder::{
    local::LocalGuard, owner::Lease, queue::Turn, quorum::QuorumLease, rung, watchdog::Renewed,
};

/// An acquired lock. Its release returns whether the lock was still held.
///
/// Dropping a guard also releases the lock, but in the background (on the runtime that opened the
/// connection to Redis) and without a result: prefer [`Guard::release`].
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct Guard {
    key: LockKey,
    held: Held,
}

/// The lock inside a guard, by kind.
#[derive(Debug)]
pub(super) enum Held {
    Local(LocalGuard),
    Queue(Turn),
    Rung(rung::Lease),
    Owner(Lease),
    Watchdog(Renewed),
    Quorum(QuorumLease),
    Fenced(FencedGuard),
}

/// A lock that a caller holds: see [`Guard::nested`].
#[derive(Debug, Clone, Copy)]
pub struct Nested<'g>(&'g Guard);

impl<'g> Nested<'g> {
    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &'g LockKey {
        self.0.key()
    }

    /// Borrows the lock for one more level. Acquires nothing.
    #[must_use]
    pub fn nested(&self) -> Nested<'g> {
        *self
    }
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lock was held until now.
    Held,
    /// The lock was no longer held. The lock of a later holder was not touched.
    Lost,
    /// Redis did not respond; the lock ends with its lease.
    Unknown,
}

impl Guard {
    pub(super) fn new(key: LockKey, held: Held) -> Self {
        Self { key, held }
    }

    pub(super) fn fenced(key: LockKey, guard: FencedGuard) -> Self {
        Self::new(key, Held::Fenced(guard))
    }

    /// Returns the fenced guard, if the lock is fenced.
    #[must_use]
    pub fn as_fenced(&self) -> Option<&FencedGuard> {
        match &self.held {
            Held::Fenced(guard) => Some(guard),
            _ => None,
        }
    }

    /// Borrows the lock, for nested work that requires it too.
    ///
    /// Acquires nothing and cannot outlive this guard. Reentrancy is explicit and never derived
    /// from the running thread: an async task may change its thread at any await.
    #[must_use]
    pub fn nested(&self) -> Nested<'_> {
        Nested(self)
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Releases the lock and returns whether it was still held. Never releases the lock of another
    /// owner, except under the rungs that demonstrate this mistake ([`rung`]). Does not fail: if
    /// Redis does not respond within 0.8 s, the result is [`Released::Unknown`] and the lock ends
    /// with its lease.
    ///
    /// # Cancel safety
    /// Safe: dropping the future has the effect of dropping the guard.
    pub async fn release(self) -> Released {
        match self.held {
            Held::Local(guard) => {
                drop(guard);
                Released::Held
            }
            Held::Queue(turn) => {
                drop(turn);
                Released::Held
            }
            Held::Rung(lease) => lease.release().await,
            Held::Owner(lease) => lease.release().await,
            Held::Watchdog(lease) => lease.release().await,
            Held::Quorum(lease) => lease.release().await,
            Held::Fenced(guard) => guard.release().await,
        }
    }

    /// Leaves the lock to expire, because work under it may still be running. A lock in this
    /// process has no expiry and is released. Returns at once; other callers wait for the rest of
    /// the lease: forever under [`rung::Rung::Setnx`].
    pub fn leave_to_expire(self) {
        match self.held {
            Held::Local(guard) => drop(guard),
            Held::Queue(turn) => drop(turn),
            Held::Rung(lease) => lease.leave_to_expire(),
            Held::Owner(lease) => lease.disarm(),
            Held::Watchdog(lease) => lease.leave_to_expire(),
            Held::Quorum(lease) => lease.leave_to_expire(),
            Held::Fenced(guard) => guard.leave_to_expire(),
        }
    }
}

/// Several acquired locks, in the order of acquisition.
#[derive(Debug, Default)]
pub struct Guards(Vec<Guard>);

impl Guards {
    pub(super) fn push(&mut self, guard: Guard) {
        self.0.push(guard);
    }

    /// Returns whether there are no locks: none was acquired, or all were released.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether there is a lock on `key`, even if its lease has expired.
    #[must_use]
    pub fn cover(&self, key: &LockKey) -> bool {
        self.0.iter().any(|guard| guard.key() == key)
    }

    /// Returns the guard on `key`, if there is one.
    #[must_use]
    pub fn guard(&self, key: &LockKey) -> Option<&Guard> {
        self.0.iter().find(|guard| guard.key() == key)
    }

    /// Returns the fence of the lock on `key`, if it has one.
    #[must_use]
    pub fn fence(&self, key: &LockKey) -> Option<i64> {
        self.guard(key)?.as_fenced().map(FencedGuard::fence)
    }

    /// Replaces the fence of the lock on `key` by a fence above `floor`: see
    /// [`FencedGuard::refence`]. Returns `None` if the lock is no longer held, or has no fence.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not respond; the guard keeps its fence.
    ///
    /// # Cancel safety
    /// Safe, as for [`FencedGuard::refence`].
    pub async fn refence(&mut self, key: &LockKey, floor: i64) -> Result<Option<i64>, Error> {
        let guard = self.0.iter_mut().find(|guard| guard.key() == key);
        match guard.map(|guard| &mut guard.held) {
            Some(Held::Fenced(guard)) => guard.refence(floor).await,
            _ => Ok(None),
        }
    }

    /// Releases all locks, in reverse order. Returns `Held` only if all were still held, and
    /// `Unknown` as soon as Redis does not respond for one; the others are then released in the
    /// background.
    ///
    /// # Cancel safety
    /// Safe: the remaining locks are released as by dropping.
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
