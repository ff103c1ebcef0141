//! Proof of a write's protection: a write that does not name its protection does not compile.

use holdfast_lock::{Guards, LockKey};

use super::{Isolation, ReadMethod, Strategy, WriteGuard};
use crate::failure::Error;

#[derive(Debug)]
pub struct Exclusion<'g>(pub(super) Protection<'g>);

#[derive(Debug)]
pub(super) enum Protection<'g> {
    /// The acquired locks. A write checks that they cover its keys.
    Locks(&'g Guards),
    /// Postgres: a row lock, a conditional write, or the abort of one of two transactions.
    Database,
    /// By the strategy's data path, which took or locked the units: no item's row is written, and
    /// an account's is locked at the read.
    DataPath,
    Nothing,
}

impl Exclusion<'_> {
    pub fn fence(&self, key: &LockKey) -> Option<i64> {
        match self.0 {
            Protection::Locks(locks) => locks.fence(key),
            Protection::Database | Protection::DataPath | Protection::Nothing => None,
        }
    }

    /// Returns whether items' rows are written.
    pub fn writes_items(&self) -> bool {
        !matches!(self.0, Protection::DataPath)
    }

    /// Fails with [`Error::Bug`] if the lock of a value was not acquired.
    pub fn check(&self, key: &LockKey) -> Result<(), Error> {
        match self.0 {
            Protection::Locks(locks) if locks.get(key).is_none() => {
                Err(Error::Bug(format!("{key} is written without its lock")))
            }
            _ => Ok(()),
        }
    }
}

impl Strategy {
    pub fn exclusion<'g>(&self, locks: &'g Guards) -> Exclusion<'g> {
        if self.data_path.is_some() {
            return Exclusion(Protection::DataPath);
        }
        let in_database = !matches!(self.read, ReadMethod::Plain | ReadMethod::CheckThenUpdate)
            || self.guard == WriteGuard::Version
            || self.transaction == Isolation::Serializable;
        Exclusion(match self.lock {
            Some(_) if self.mistake.is_none() => Protection::Locks(locks),
            None if in_database => Protection::Database,
            _ => Protection::Nothing,
        })
    }
}
