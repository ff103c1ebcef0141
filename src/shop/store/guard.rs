//! The rows that a write changes, and what it demands of them, column by column.

use std::borrow::Borrow;
use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::lock::LockKey;
use crate::shop::command::state::State;
use crate::shop::failure::Error;
use crate::shop::strategy::exclusion::Exclusion;
use crate::shop::strategy::{Guard, Strategy};

/// What keeps a write apart from others.
#[derive(Debug, Clone, Copy)]
pub struct Protection<'a> {
    /// What the write demands of its rows.
    pub guard: Guard,
    /// The locks around it, or what stands in for them.
    pub exclusion: &'a Exclusion<'a>,
}

impl<'a> Protection<'a> {
    /// Under that strategy.
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
    /// The rows that differ between two states, sorted. Each row's new value is the one of `after`;
    /// its guard is the version of `before`. [`Error::Bug`] if the locks do not cover a row.
    pub fn of(before: &State, after: &State, by: Protection<'_>) -> Result<Self, Error> {
        Ok(Self { items: items(before, after, by)?, accounts: accounts(before, after, by)? })
    }

    /// The first of them.
    pub fn first(&self) -> Option<GuardedRow> {
        let item = self.items.keys.first().cloned().map(GuardedRow::Item);
        item.or_else(|| self.accounts.keys.first().copied().map(GuardedRow::Account))
    }
}

/// Whether two of them change the same row.
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

/// Changed rows of one table. Columns of equal length.
#[derive(Debug, Default)]
pub(super) struct Rows<K> {
    pub keys: Vec<K>,
    /// The version that the row must have; `None` demands nothing.
    pub versions: Vec<Option<i64>>,
    /// The fence under which it is written, and above which it must not have been.
    pub fences: Vec<Option<i64>>,
    /// The new value; `None` for a row that a conditional update has changed already.
    pub values: Vec<Option<i64>>,
    /// By how much the version is raised.
    pub raises: Vec<i64>,
}

/// What changes of one row.
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

    /// The fence under which a row is written.
    pub fn fence<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<i64>
    where
        K: Borrow<Q>,
    {
        self.fences[self.keys.iter().position(|known| known.borrow() == key)?]
    }

    /// Fails if the locks do not cover the row.
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
    /// Raises the row's version, so that a write that arrives later matches nothing. Waits for a
    /// write or a transaction that has the row locked.
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
    fn parts_of_one_row_are_seen() {
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
