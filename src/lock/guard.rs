//! Proof in code that one holds a lock.

use super::Error;
use super::fenced::FencedGuard;
use super::key::LockKey;
use super::ladder::{
    local::LocalGuard, owner::Lease, queue::Turn, quorum::QuorumLease, rung, watchdog::Renewed,
};

/// One lock that was taken. Giving it back says whether it was still held.
///
/// Dropping a guard gives the lock back too, but only *hands over* the release (to the runtime the
/// lock was taken on) and learns nothing: prefer [`Guard::release`].
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct Guard {
    key: LockKey,
    held: Held,
}

/// What holds a lock, by its kind.
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
    /// What it is a lock on.
    #[must_use]
    pub fn key(&self) -> &'g LockKey {
        self.0.key()
    }

    /// One level further down. Costs nothing, takes nothing.
    #[must_use]
    pub fn nested(&self) -> Nested<'g> {
        *self
    }
}

/// What giving a lock back found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It was held until now.
    Held,
    /// It had expired, or was somebody else's by now. Nothing of theirs was touched.
    Lost,
    /// Redis did not answer; the lock ends with its lease.
    Unknown,
}

impl Guard {
    pub(super) fn new(key: LockKey, held: Held) -> Self {
        Self { key, held }
    }

    pub(super) fn fenced(key: LockKey, guard: FencedGuard) -> Self {
        Self::new(key, Held::Fenced(guard))
    }

    /// The fenced guard inside, if it is one: its number, and whether it is still held.
    #[must_use]
    pub fn as_fenced(&self) -> Option<&FencedGuard> {
        match &self.held {
            Held::Fenced(guard) => Some(guard),
            _ => None,
        }
    }

    /// The same lock, for work that is called under it and wants it held too.
    ///
    /// It costs nothing and can't outlive this guard: reentrancy is handed down by the holder,
    /// never guessed from who is running. (An asynchronous task changes its thread at any await.)
    #[must_use]
    pub fn nested(&self) -> Nested<'_> {
        Nested(self)
    }

    /// What it is a lock on.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Gives the lock back, and says whether it was still held. Never touches somebody else's (but
    /// under the rungs that are there to show it: [`rung`]). It does not fail: where Redis does not
    /// answer it is [`Released::Unknown`], within 0.8 s, and the lock ends with its lease.
    ///
    /// # Cancel safety
    /// Safe: a dropped future falls back to what dropping the guard does.
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

    /// Leaves the lock to its expiry, because nobody knows whether the work under it is over.
    /// A lock in this process has no expiry and is given back. Returns at once; others wait for
    /// what is left of the lease: for ever, under [`rung::Rung::Setnx`].
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

/// Several locks, held together, in the order they were taken.
#[derive(Debug, Default)]
pub struct Guards(Vec<Guard>);

impl Guards {
    pub(super) fn push(&mut self, guard: Guard) {
        self.0.push(guard);
    }

    /// Whether there is none: nothing was taken, or all was given back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is a lock on `key`. Says nothing of whether it is still held.
    #[must_use]
    pub fn cover(&self, key: &LockKey) -> bool {
        self.0.iter().any(|guard| guard.key() == key)
    }

    /// The guard on `key`, if there is one.
    #[must_use]
    pub fn guard(&self, key: &LockKey) -> Option<&Guard> {
        self.0.iter().find(|guard| guard.key() == key)
    }

    /// The fence of the lock on `key`, if there is one and it has a fence.
    #[must_use]
    pub fn fence(&self, key: &LockKey) -> Option<i64> {
        self.guard(key)?.as_fenced().map(FencedGuard::fence)
    }

    /// A number above `floor` for the lock on `key`: see [`FencedGuard::refence`]. `None` when the
    /// lock is no longer held, or has no fence.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not answer; the guard keeps its number.
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

    /// Gives all of them back, the last one first. `Held` only if every one was still held;
    /// `Unknown` as soon as Redis does not answer for one, and the rest is handed over.
    ///
    /// # Cancel safety
    /// Safe: what was not given back yet is handed over, as by dropping.
    pub async fn release(mut self) -> Released {
        let mut all = Released::Held;
        while let Some(guard) = self.0.pop() {
            match guard.release().await {
                Released::Held => {}
                Released::Lost => all = Released::Lost,
                // Do not wait once per key for a Redis that does not answer: hand over the rest.
                Released::Unknown => return Released::Unknown,
            }
        }
        all
    }

    /// [`Guard::leave_to_expire`] for all of them.
    pub fn leave_to_expire(self) {
        for guard in self.0 {
            guard.leave_to_expire();
        }
    }
}
