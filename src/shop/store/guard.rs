//! The rows that a write changes, with their guards, as columns.

use std::borrow::Borrow;
use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::lock::LockKey;
use crate::shop::command::state::State;
use crate::shop::failure::Error;
use crate::shop::strategy::exclusion::Exclusion;
use crate::shop::strategy::{Guard, Strategy};

/// The protection of a write against concurrent writes.
#[derive(Debug, Clone, Copy)]
pub struct Protection<'a> {
    /// The condition of the write on its rows.
    pub guard: Guard,
    /// The acquired locks, or what replaces them.
    pub exclusion: &'a Exclusion<'a>,
}

impl<'a> Protection<'a> {
    /// Returns the protection under `strategy`.
    pub fn of(strategy: &Strategy, exclusion: &'a Exclusion<'a>) -> Self {
        Self { guard: strategy.guard, exclusion }
    }
}

/// The rows that a write changes.
#[derive(Debug)]
pub struct ChangedRows {
    pub(super) items: Rows<String>,
    pub(super) accounts: Rows<Uuid>,
}

impl ChangedRows {
    /// Returns the rows that differ between two states, sorted. The value of a row is that of
    /// `after`; its guard is the version of `before`. Fails with [`Error::Bug`] if the locks do not
    /// cover a row.
    pub fn of(before: &State, after: &State, by: Protection<'_>) -> Result<Self, Error> {
        Ok(Self { items: items(before, after, by)?, accounts: accounts(before, after, by)? })
    }

    /// Returns the first row.
    pub fn first(&self) -> Option<GuardedRow> {
        let item = self.items.keys.first().cloned().map(GuardedRow::Item);
        item.or_else(|| self.accounts.keys.first().copied().map(GuardedRow::Account))
    }
}

/// Returns whether two of `all` change the same row.
pub fn share_a_row<'a>(all: impl ExactSizeIterator<Item = &'a ChangedRows>) -> bool {
    if all.len() < 2 {
        return false;
    }
    let (mut items, mut accounts) = (HashSet::new(), HashSet::new());
    let mut shared = false;
    for rows in all {
        shared |= rows.items.keys.iter().any(|sku| !items.insert(sku));
        shared |= rows.accounts.keys.iter().any(|user| !accounts.insert(user));
    }
    shared
}

/// The changed rows of one table, as columns of equal length.
#[derive(Debug, Default)]
pub(super) struct Rows<K> {
    pub keys: Vec<K>,
    /// The version that the row must have; `None` without a condition.
    pub versions: Vec<Option<i64>>,
    /// The fence of the write, which must not be lower than the row's; `None` without a condition.
    pub fences: Vec<Option<i64>>,
    /// The new value; `None` if a conditional update has changed the row already.
    pub values: Vec<Option<i64>>,
    /// Increment of the version.
    pub raises: Vec<i64>,
}

/// The change of one row.
struct Row {
    version: i64,
    reserved: bool,
    value: i64,
    next_version: i64,
}

impl<K: Clone> Rows<K> {
    pub fn extend(&mut self, more: &Self) {
        self.keys.extend_from_slice(&more.keys);
        self.versions.extend_from_slice(&more.versions);
        self.fences.extend_from_slice(&more.fences);
        self.values.extend_from_slice(&more.values);
        self.raises.extend_from_slice(&more.raises);
    }

    /// Returns the fence under which a row is written.
    pub fn fence<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<i64>
    where
        K: Borrow<Q>,
    {
        self.fences[self.keys.iter().position(|known| known.borrow() == key)?]
    }

    /// Adds a row. Fails if the locks do not cover it.
    fn push(&mut self, key: K, lock: &LockKey, row: &Row, by: Protection<'_>) -> Result<(), Error> {
        by.exclusion.check(lock)?;
        let guard = by.guard;
        let fence = match (guard, by.exclusion.fence(lock)) {
            (Guard::VersionAndFence, None) => {
                return Err(Error::Bug("a fenced write has no fence".to_owned()));
            }
            (Guard::VersionAndFence, fence) => fence,
            (Guard::None | Guard::Version, _) => None,
        };
        self.keys.push(key);
        self.versions.push((guard != Guard::None).then_some(row.version));
        self.fences.push(fence);
        self.values.push((!row.reserved).then_some(row.value));
        self.raises.push(row.next_version - row.version);
        Ok(())
    }
}

fn items(before: &State, after: &State, by: Protection<'_>) -> Result<Rows<String>, Error> {
    let mut rows = Rows::default();
    for (sku, now) in &after.items {
        let Some(was) = before.items.get(sku).filter(|was| was.version != now.version) else {
            continue;
        };
        let row = Row {
            version: was.version,
            reserved: was.reserved,
            value: now.stock,
            next_version: now.version,
        };
        rows.push(sku.to_string(), &sku.lock_key(), &row, by)?;
    }
    Ok(rows)
}

fn accounts(before: &State, after: &State, by: Protection<'_>) -> Result<Rows<Uuid>, Error> {
    let mut rows = Rows::default();
    for (user, now) in &after.accounts {
        let Some(was) = before.accounts.get(user).filter(|was| was.version != now.version) else {
            continue;
        };
        let row = Row {
            version: was.version,
            reserved: was.reserved,
            value: now.balance_cents,
            next_version: now.version,
        };
        rows.push(user.0, &user.lock_key(), &row, by)?;
    }
    Ok(rows)
}

/// A row that a write changes: guarded, or locked by its transaction.
#[derive(Debug, Clone)]
pub enum GuardedRow {
    Item(String),
    Account(Uuid),
}

impl GuardedRow {
    /// Raises the row's version, so that a write that arrives later matches no row. Waits for a
    /// write or a transaction that has locked the row.
    pub async fn invalidate(&self, db: &mut PgConnection) -> Result<(), Error> {
        match self {
            GuardedRow::Item(sku) => {
                let raise =
                    sqlx::query!("update items set version = version + 1 where sku = $1", sku,);
                raise.execute(db).await?;
            }
            GuardedRow::Account(user) => {
                let raise = sqlx::query!(
                    "update accounts set version = version + 1 where user_id = $1",
                    user,
                );
                raise.execute(db).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_share_a_row_are_detected() {
        let of = |items: &[&str], accounts: &[u128]| {
            let keys = items.iter().map(|sku| (*sku).to_owned()).collect();
            let items = Rows { keys, ..Rows::default() };
            let keys = accounts.iter().copied().map(Uuid::from_u128).collect();
            ChangedRows { items, accounts: Rows { keys, ..Rows::default() } }
        };
        assert!(!share_a_row([of(&["tea", "cup"], &[1]), of(&["pot"], &[2])].iter()));
        assert!(share_a_row(
            [of(&["tea"], &[]), of(&["cup"], &[]), of(&["pot", "tea"], &[])].iter()
        ));
        assert!(share_a_row([of(&[], &[1]), of(&["tea"], &[2]), of(&[], &[1])].iter()));
    }
}
