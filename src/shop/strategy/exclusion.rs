//! Proof of what keeps a write apart from others: a write that names none does not compile.

use super::{Guard, Isolation, LockTarget, Read, Release, Strategy};
use crate::lock::{Guards, LockKey};
use crate::shop::failure::Error;

/// What keeps one change apart from others. Only [`Strategy::exclusion`] can claim that the
/// database does, or that nothing does.
#[derive(Debug)]
pub enum Exclusion<'g> {
    /// These locks. A write checks that they cover its keys.
    Locked(&'g Guards),
    /// A row lock, a conditional write, or Postgres, which ends one of two transactions.
    InDatabase(Sealed),
    /// Nothing, and why.
    Unprotected(&'static str, Sealed),
}

/// Can be made in this module only.
#[derive(Debug)]
pub struct Sealed(());

impl Exclusion<'_> {
    /// The fence of the lock on `key`, if there is one and it has a fence.
    pub fn fence(&self, key: &LockKey) -> Option<i64> {
        match self {
            Exclusion::Locked(locks) => locks.fence(key),
            Exclusion::InDatabase(_) | Exclusion::Unprotected(..) => None,
        }
    }

    /// Rejects a write to a value whose lock is not held: a mistake in this program.
    ///
    /// # Errors
    /// [`Error::Bug`].
    pub fn check(&self, key: &LockKey) -> Result<(), Error> {
        match self {
            Exclusion::Locked(locks) if !locks.cover(key) => {
                Err(Error::Bug(format!("{key} is written without its lock")))
            }
            _ => Ok(()),
        }
    }
}

/// What protects a change under `strategy`, given the acquired locks.
pub(super) fn of<'g>(strategy: &Strategy, locks: &'g Guards) -> Exclusion<'g> {
    match strategy {
        Strategy { target: LockTarget::Order, .. } => {
            Exclusion::Unprotected("its lock is on the order, not on what is changed", Sealed(()))
        }
        Strategy { release: Release::BeforeCommit, .. } => {
            Exclusion::Unprotected("its lock is released before the commit", Sealed(()))
        }
        Strategy { lock: Some(_), .. } => Exclusion::Locked(locks),
        Strategy { transaction: Isolation::Serializable, .. }
        | Strategy { read: Read::RowLock | Read::Advisory | Read::Reserve, .. }
        | Strategy { guard: Guard::Version, .. } => Exclusion::InDatabase(Sealed(())),
        Strategy { read: Read::Plain, guard: Guard::None | Guard::VersionAndFence, .. } => {
            Exclusion::Unprotected(strategy.about, Sealed(()))
        }
    }
}
