//! All SQL that writes orders, items, accounts, ledgers and key records, but that of strategies
//! with a data path; and the reads from which a write is computed.
//!
//! One of three statements writes the changes, all or nothing: [`place`] for new orders, [`edit`]
//! for an item's settings, [`transition`] for everything else. (A strategy with a data path has its
//! own: [`crate::strategy::data_path`].) Each locks its rows in one order (orders, items, accounts,
//! key records), compares them with the guard, and writes only if all rows match. A guard that does
//! not match raises no SQL error.

pub mod accounts;
pub mod admin_changes;
pub mod changed_rows;
pub mod conditional_update;
pub mod edit;
pub mod items;
pub mod key_records;
pub mod place;
pub mod purge;
mod purge_lab;
pub mod read;
pub mod shared;
pub mod transition;

use time::OffsetDateTime;
use uuid::Uuid;

use self::changed_rows::{ChangedRows, GuardedRow};
use super::Sku;
use super::command::changes::{Changes, NewOrder, StockChange};
use super::failure::StoredResponse;
use super::idempotency::IdempotencyRequest;
use super::model::Item;
pub use purge_lab::{lab_items_between, oldest_kept, purge_lab_item};

#[derive(Debug)]
pub struct CommandWrite {
    pub position: usize,
    pub idempotency: IdempotencyRequest,
    pub changes: Changes,
    pub response: StoredResponse,
    pub request_id: Uuid,
}

#[derive(Debug)]
pub struct BatchWrite {
    pub rows: ChangedRows,
    pub now: OffsetDateTime,
    /// The commands with changes, in order.
    pub commands: Vec<CommandWrite>,
    /// True if it was decided without a read of its keys, so a record of them may be in another
    /// transaction that is still open.
    pub is_unread: bool,
}

impl BatchWrite {
    /// Returns the new orders. [`place`] writes a batch that has any.
    pub fn orders(&self) -> impl Iterator<Item = &NewOrder> {
        self.commands.iter().filter_map(|write| write.changes.order.as_ref())
    }

    pub fn places_orders(&self) -> bool {
        self.orders().next().is_some()
    }

    /// Returns the edit of an item, which is a batch of its own: no command with one has a batch
    /// key.
    pub fn edit(&self) -> Option<(&CommandWrite, &Item)> {
        self.commands.iter().find_map(|write| Some((write, write.changes.edit.as_ref()?)))
    }

    fn sold(&self, sku: &Sku) -> i64 {
        -self.changes_of(sku).filter_map(|change| change.order.map(|_| change.delta)).sum::<i64>()
    }

    /// Returns the units of an item that are added, less those removed, without an order.
    fn restocked(&self, sku: &Sku) -> i64 {
        let changes = self.changes_of(sku).filter(|change| change.order.is_none());
        changes.map(|change| change.delta).sum()
    }

    fn changes_of(&self, sku: &Sku) -> impl Iterator<Item = &StockChange> {
        let changes = self.commands.iter().flat_map(|write| &write.changes.stock);
        changes.filter(move |change| change.key == *sku)
    }
}

fn item_rows<'a>(batches: &[&'a BatchWrite]) -> Vec<(&'a BatchWrite, &'a GuardedRow<Sku>)> {
    let rows =
        batches.iter().flat_map(|&batch| batch.rows.items.iter().map(move |row| (batch, row)));
    rows.collect()
}

pub(crate) fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    Done,
    /// Nothing is written: a row changed since it was read.
    RowChanged,
}

/// Returns the `lock_timeout` of a statement with several batches, or with one that can be decided
/// again with a read. Another single batch waits longer, for the `lock_timeout` of its session.
fn row_lock_timeout(batches: &[&BatchWrite]) -> Option<&'static str> {
    let has_another_way = batches.len() > 1 || batches.iter().any(|batch| batch.is_unread);
    has_another_way.then_some("200ms")
}

impl WriteResult {
    pub(crate) fn from_guard(holds: bool) -> Self {
        if holds { WriteResult::Done } else { WriteResult::RowChanged }
    }
}
