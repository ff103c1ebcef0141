//! The rows that a write changes, with their guards, as columns.

use std::borrow::Borrow;

use holdfast_lock::LockKey;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::shop::command::changes::StockChange;
use crate::shop::command::state::{BalanceSnapshot, ShopState, StockSnapshot};
use crate::shop::failure::Error;
use crate::shop::strategy::WriteGuard;
use crate::shop::strategy::exclusion::Exclusion;

/// The rows that a write changes.
#[derive(Debug)]
pub struct ChangedRows {
    pub(super) items: GuardedRows<String>,
    pub(super) accounts: GuardedRows<Uuid>,
}

impl ChangedRows {
    /// Returns the rows that differ between two states, sorted. The value of a row is that of
    /// `after`; its guard is the version of `before`. Fails with [`Error::Bug`] if the locks do not
    /// cover a row.
    pub fn between(
        before: &ShopState,
        after: &ShopState,
        guard: WriteGuard,
        exclusion: &Exclusion<'_>,
    ) -> Result<Self, Error> {
        let (mut items, mut accounts) = (GuardedRows::default(), GuardedRows::default());
        for (sku, now) in &after.items {
            let was = before.items.get(sku).filter(|was| was.version != now.version);
            let Some(&StockSnapshot { version, is_updated, .. }) = was else { continue };
            let row =
                RowChange { version, is_updated, value: now.stock, next_version: now.version };
            items.push(sku.to_string(), &sku.lock_key(), &row, guard, exclusion)?;
        }
        for (user, now) in &after.accounts {
            let was = before.accounts.get(user).filter(|was| was.version != now.version);
            let Some(&BalanceSnapshot { version, is_updated, .. }) = was else { continue };
            let (value, next_version) = (now.balance_cents, now.version);
            let row = RowChange { version, is_updated, value, next_version };
            accounts.push(user.0, &user.lock_key(), &row, guard, exclusion)?;
        }
        Ok(Self { items, accounts })
    }

    /// Returns whether the write of each row requires the version that was read.
    pub fn require_versions(&self) -> bool {
        self.items.versions.iter().chain(&self.accounts.versions).all(Option::is_some)
    }

    /// Raises the version of one of the rows, so that a write that arrives later matches no row.
    /// Waits for a write or a transaction that has locked the row.
    pub async fn invalidate(&self, db: &mut PgConnection) -> Result<(), Error> {
        if let Some(sku) = self.items.keys.first() {
            sqlx::query!("update items set version = version + 1 where sku = $1", sku)
                .execute(db)
                .await?;
        } else if let Some(user) = self.accounts.keys.first() {
            sqlx::query!("update accounts set version = version + 1 where user_id = $1", user)
                .execute(db)
                .await?;
        } else {
            return Err(Error::Bug("a write changed no row".to_owned()));
        }
        Ok(())
    }
}

/// The changed rows of one table, as columns of equal length.
#[derive(Debug, Default)]
pub(super) struct GuardedRows<K> {
    pub keys: Vec<K>,
    /// The version that the row must have; `None` without a condition.
    pub versions: Vec<Option<i64>>,
    /// The fence of the write, which must not be lower than the row's; `None` without a condition.
    pub fences: Vec<Option<i64>>,
    /// The new value; `None` if a conditional update has changed the row already.
    pub values: Vec<Option<i64>>,
    /// Increment of the version.
    pub increments: Vec<i64>,
}

/// Increments of the items' running sums, as columns beside the rows of [`GuardedRows`].
#[derive(Debug, Default)]
pub(super) struct SumIncrements {
    /// Units in orders.
    pub sold: Vec<i64>,
    /// Units added or removed without an order.
    pub restocked: Vec<i64>,
}

impl SumIncrements {
    /// Adds the rows of a batch, with the sums of its changes.
    pub fn extend<'a>(
        &mut self,
        rows: &GuardedRows<String>,
        changes: impl Iterator<Item = &'a StockChange>,
    ) {
        let offset = self.sold.len();
        self.sold.resize(offset + rows.keys.len(), 0);
        self.restocked.resize(offset + rows.keys.len(), 0);
        for change in changes {
            let Some(place) = rows.position(change.key.as_str()) else { continue };
            match change.order {
                Some(_) => self.sold[offset + place] -= change.delta,
                None => self.restocked[offset + place] += change.delta,
            }
        }
    }
}

/// The change of one row.
struct RowChange {
    version: i64,
    is_updated: bool,
    value: i64,
    next_version: i64,
}

impl<K: Clone> GuardedRows<K> {
    pub fn extend(&mut self, more: &Self) {
        self.keys.extend_from_slice(&more.keys);
        self.versions.extend_from_slice(&more.versions);
        self.fences.extend_from_slice(&more.fences);
        self.values.extend_from_slice(&more.values);
        self.increments.extend_from_slice(&more.increments);
    }

    /// Returns the fence under which a row is written.
    pub fn fence<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<i64>
    where
        K: Borrow<Q>,
    {
        self.fences[self.position(key)?]
    }

    fn position<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        self.keys.iter().position(|known| known.borrow() == key)
    }

    /// Adds a row. Fails if the locks do not cover it.
    fn push(
        &mut self,
        key: K,
        lock: &LockKey,
        row: &RowChange,
        guard: WriteGuard,
        exclusion: &Exclusion<'_>,
    ) -> Result<(), Error> {
        exclusion.check(lock)?;
        let fence = match (guard, exclusion.fence(lock)) {
            (WriteGuard::VersionAndFence, None) => {
                return Err(Error::Bug("a fenced write has no fence".to_owned()));
            }
            (WriteGuard::VersionAndFence, fence) => fence,
            (WriteGuard::None | WriteGuard::Version, _) => None,
        };
        self.keys.push(key);
        self.versions.push((guard != WriteGuard::None).then_some(row.version));
        self.fences.push(fence);
        self.values.push((!row.is_updated).then_some(row.value));
        self.increments.push(row.next_version - row.version);
        Ok(())
    }
}
