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

use uuid::Uuid;

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

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All of it is written.
    Done,
    /// Nothing is: a row is no longer as it was read.
    Moved,
}

impl Written {
    fn of(holds: bool) -> Self {
        if holds { Written::Done } else { Written::Moved }
    }
}
