//! How a value (an item's stock, a user's balance) is read and changed, and what keeps two changes
//! apart.
//!
//! A [`Strategy`] is a value: one `place` and one `pay` read it. It says which lock is taken, on
//! what and for how long, how the value is read and how it is written. Whatever it says, a value
//! changes only in [`write_stock`] and [`write_balance`], which write its ledger entry in the same
//! breath, and which want to see an [`Exclusion`]: a write whose keeper is not named does not
//! compile.

mod sources;
mod strategies;
mod strategy;

pub mod advisory;
pub mod atomic;
pub mod batched;
pub mod early_release;
mod entries;
pub mod fenced;
pub mod read_then_update;
pub mod row_lock;
pub mod serializable;
pub mod version;
pub mod wrong_key;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Error, OrderId, Sku, UserId};
use crate::lock::{Guards, LockKey};
pub(super) use strategies::ATTEMPTS;
pub use strategies::{BATCHED, STRATEGIES};
pub use strategy::{Holds, Isolation, On, Read, Release, Strategy, Write};

/// What keeps one change apart from others. Only [`Strategy::exclusion`] can claim that the
/// database does, or that nothing does.
#[derive(Debug)]
pub enum Exclusion<'g> {
    /// These locks. A write checks that they name its key.
    Locked(&'g Guards),
    /// The row is locked, or the write is conditional, or Postgres ends one of two.
    InDatabase(Sealed),
    /// Nothing, and why.
    Unprotected(&'static str, Sealed),
}

/// Can be made in this module only.
#[derive(Debug)]
pub struct Sealed(());

impl Exclusion<'_> {
    /// The fence under which `key` may be written.
    fn fence(&self, key: &LockKey) -> Result<i64, Error> {
        self.fence_of(key).ok_or_else(|| Error::Bug(format!("{key} is written without a fence")))
    }

    /// The fence of the lock on `key`, where there is one and it has a fence.
    #[must_use]
    pub fn fence_of(&self, key: &LockKey) -> Option<i64> {
        match self {
            Exclusion::Locked(guards) => guards.fence(key),
            Exclusion::InDatabase(_) | Exclusion::Unprotected(..) => None,
        }
    }

    /// A write to a value whose lock is not held is a mistake in this program.
    fn check(&self, key: &LockKey) -> Result<(), Error> {
        match self {
            Exclusion::Locked(guards) if !guards.cover(key) => {
                Err(Error::Bug(format!("{key} is written without its lock")))
            }
            _ => Ok(()),
        }
    }
}

/// An item as it was read: what the change is computed from.
#[derive(Debug, Clone)]
pub struct StockReading {
    /// Which item.
    pub sku: Sku,
    /// Its price.
    pub price_cents: i64,
    /// What was on the shelf.
    pub stock: i64,
    /// How many of it one customer may have.
    pub limit_per_user: Option<i64>,
    /// The row's version at that moment.
    pub version: i64,
}

/// An account as it was read.
#[derive(Debug, Clone, Copy)]
pub struct BalanceReading {
    /// Whose.
    pub user: UserId,
    /// What was on it.
    pub balance_cents: i64,
    /// The row's version at that moment.
    pub version: i64,
}

/// Why a ledger entry was written, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The reason, as in the ledger.
    pub reason: &'a str,
    /// The order it belongs to, if any.
    pub order: Option<OrderId>,
    /// The request that did it.
    pub request_id: Uuid,
}

/// One change that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Its place in the ledger.
    pub seq: i64,
    /// The value before.
    pub before: i64,
    /// What was added.
    pub delta: i64,
    /// The value after.
    pub after: i64,
    /// The row's version that `before` was read at.
    pub version: i64,
}

/// There is not enough.
#[derive(Debug, Clone)]
pub struct Short {
    /// Which of the changes could not be made: its place in the list.
    pub at: usize,
    /// How much there is.
    pub available: i64,
}

/// Reads the items, sorted by sku; unknown ones are left out.
///
/// # Errors
/// Postgres's.
pub async fn read_stock(
    tx: &mut PgConnection,
    strategy: &Strategy,
    skus: &[String],
) -> Result<Vec<StockReading>, Error> {
    match strategy.read {
        Read::Plain => read_then_update::read_stock(tx, skus).await,
        Read::RowLock => row_lock::read_stock(tx, skus).await,
        Read::Advisory => advisory::read_stock(tx, skus).await,
    }
}

/// Looks whether one of the items' locks comes too late, or Redis has forgotten its numbers, before
/// anything is written. Whoever writes items one after the other in one transaction asks first:
/// otherwise each of them ends a transaction of its own.
///
/// # Errors
/// [`Error::Stale`] with all that do; Postgres's.
pub async fn look_at_fences(
    tx: &mut PgConnection,
    strategy: &Strategy,
    exclusion: &Exclusion<'_>,
    skus: &[Sku],
) -> Result<(), Error> {
    match strategy.write {
        Write::Fenced => fenced::look_at_fences(tx, exclusion, skus).await,
        Write::Computed | Write::Conditional | Write::Versioned => Ok(()),
    }
}

/// Changes the stock of each reading by its delta and writes the ledger entries. All or nothing:
/// whoever gets [`Short`] must roll back. `readings` are sorted by sku; a sku occurs once.
///
/// # Errors
/// [`Error::Bug`] when a lock of `exclusion` does not cover an item; Postgres's.
pub async fn write_stock(
    tx: &mut PgConnection,
    strategy: &Strategy,
    exclusion: &Exclusion<'_>,
    readings: &[StockReading],
    deltas: &[i64],
    origin: Origin<'_>,
) -> Result<Result<Vec<Moved>, Short>, Error> {
    for reading in readings {
        exclusion.check(&reading.sku.lock_key())?;
    }
    match strategy.write {
        Write::Computed => read_then_update::write_stock(tx, readings, deltas, origin).await,
        Write::Conditional => atomic::write_stock(tx, readings, deltas, origin).await,
        Write::Versioned => version::write_stock(tx, readings, deltas, origin).await,
        Write::Fenced => fenced::write_stock(tx, exclusion, readings, deltas, origin).await,
    }
}

/// Reads an account; `None` when there is none.
///
/// # Errors
/// Postgres's.
pub async fn read_balance(
    tx: &mut PgConnection,
    strategy: &Strategy,
    user: UserId,
) -> Result<Option<BalanceReading>, Error> {
    match strategy.read {
        Read::Plain => read_then_update::read_balance(tx, user).await,
        Read::RowLock => row_lock::read_balance(tx, user).await,
        Read::Advisory => advisory::read_balance(tx, user).await,
    }
}

/// Changes a balance and writes the ledger entry. Whoever gets [`Short`] must roll back.
///
/// # Errors
/// [`Error::Bug`] when a lock of `exclusion` does not cover the account; Postgres's.
pub async fn write_balance(
    tx: &mut PgConnection,
    strategy: &Strategy,
    exclusion: &Exclusion<'_>,
    reading: BalanceReading,
    delta: i64,
    origin: Origin<'_>,
) -> Result<Result<Moved, Short>, Error> {
    exclusion.check(&reading.user.lock_key())?;
    match strategy.write {
        Write::Computed => read_then_update::write_balance(tx, reading, delta, origin).await,
        Write::Conditional => atomic::write_balance(tx, reading, delta, origin).await,
        Write::Versioned => version::write_balance(tx, reading, delta, origin).await,
        Write::Fenced => fenced::write_balance(tx, exclusion, reading, delta, origin).await,
    }
}
