//! Proof of a write's protection: a write that does not name its protection does not compile.

use holdfast_lock::{Guards, LockKey};

use super::{Isolation, LockTarget, ReadMethod, ReleaseTime, Strategy, WriteGuard};
use crate::shop::failure::Error;

/// The protection of one change. Only [`Strategy::exclusion`] can state that the database protects
/// it, or that nothing does.
#[derive(Debug)]
pub enum Exclusion<'g> {
    /// The acquired locks. A write checks that they cover its keys.
    Locked(&'g Guards),
    /// Postgres: a row lock, a conditional write, or the abort of one of two transactions.
    InDatabase(Seal),
    /// None, with the reason.
    Unprotected(&'static str, Seal),
}

/// Can be constructed in this module only.
#[derive(Debug)]
pub struct Seal(());

impl Exclusion<'_> {
    /// Returns the fence of the lock on `key`, if it has one.
    pub fn fence(&self, key: &LockKey) -> Option<i64> {
        match self {
            Exclusion::Locked(locks) => locks.fence(key),
            Exclusion::InDatabase(_) | Exclusion::Unprotected(..) => None,
        }
    }

    /// Fails with [`Error::Bug`] if the lock of a value was not acquired.
    pub fn check(&self, key: &LockKey) -> Result<(), Error> {
        match self {
            Exclusion::Locked(locks) if !locks.contains(key) => {
                Err(Error::Bug(format!("{key} is written without its lock")))
            }
            _ => Ok(()),
        }
    }
}

impl Strategy {
    /// Returns the protection of a change under this strategy, given the acquired locks.
    pub fn exclusion<'g>(&self, locks: &'g Guards) -> Exclusion<'g> {
        match self {
            Strategy { target: LockTarget::Order, .. } => {
                Exclusion::Unprotected("its lock is on the order, not on what is changed", Seal(()))
            }
            Strategy { release: ReleaseTime::BeforeCommit, .. } => {
                Exclusion::Unprotected("its lock is released before the commit", Seal(()))
            }
            Strategy { lock: Some(_), .. } => Exclusion::Locked(locks),
            Strategy { transaction: Isolation::Serializable, .. }
            | Strategy {
                read: ReadMethod::RowLock | ReadMethod::Advisory | ReadMethod::ConditionalUpdate,
                ..
            }
            | Strategy { guard: WriteGuard::Version, .. } => Exclusion::InDatabase(Seal(())),
            Strategy {
                read: ReadMethod::Plain,
                guard: WriteGuard::None | WriteGuard::VersionAndFence,
                ..
            } => Exclusion::Unprotected("it has no lock", Seal(())),
        }
    }
}
