//! All SQL that writes orders, items, accounts, ledgers and key records, and the reads that a write
//! is computed from.
//!
//! Changes are written by one of two statements, all or nothing: [`place`] for new orders,
//! [`transition`] for everything else. Each locks its rows in one order (orders, items, accounts,
//! key records), compares them with the guard, and writes only if all of them match. No statement
//! raises an error for a guard that does not hold.

pub mod accounts;
pub mod guard;
pub mod items;
pub mod key_records;
pub mod place;
pub mod purge;
pub mod read;
pub mod reserve;
pub mod transition;

use time::OffsetDateTime;
use uuid::Uuid;

use self::guard::ChangedRows;
use super::command::changes::Changes;
use super::failure::StoredResponse;
use super::idempotency::IdempotencyRequest;

/// What one command of a batch writes.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Its idempotency key.
    pub idempotency: &'a IdempotencyRequest,
    /// Its changes.
    pub changes: &'a Changes,
    /// Its response.
    pub response: &'a StoredResponse,
    /// The request it belongs to.
    pub request_id: Uuid,
}

/// What is written under the same locks.
#[derive(Debug)]
pub struct Part<'a> {
    /// The rows that change.
    pub rows: &'a ChangedRows,
    /// When they were read, by the clock of Postgres.
    pub now: OffsetDateTime,
    /// What each command writes.
    pub writes: Vec<Write<'a>>,
}

impl Part<'_> {
    /// Whether it is written by [`place`], not by [`transition`].
    pub fn places_orders(&self) -> bool {
        self.writes.iter().any(|write| write.changes.order.is_some())
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All of it is written.
    Done,
    /// Nothing is: a row is no longer as it was read.
    Moved,
}

/// How long a statement of several parts waits for a row. By itself, each part waits longer.
fn row_patience(parts: &[Part<'_>]) -> Option<&'static str> {
    (parts.len() > 1).then_some("200ms")
}

impl Written {
    fn of(holds: bool) -> Self {
        if holds { Written::Done } else { Written::Moved }
    }
}
