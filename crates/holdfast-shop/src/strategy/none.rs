//! `none`: read, compute, write back: the way most shops change a number.
//!
//! # Guarantee
//! Correct while no other request changes the value between the read and the commit. Nothing in
//! this strategy ensures that; a lock around it can, and most strategies are this one with a lock
//! around it.
//!
//! # Breaks when
//! Two requests read the same value. Both write the result they computed, the second write replaces
//! the first, and one sale leaves no trace in the stock: a lost update. No constraint is violated.
//! The ledger shows it: both entries carry the same `before` and `version`.
//!
//! # Seen in the wild
//! Any `order.stock = order.stock - 1; save()` of an object mapper.

use super::{Guarantee, Isolation, ReadMethod, Strategy, WriteGuard};

/// Maximum number of attempts at a command whose transaction Postgres aborted because of another
/// one.
const ATTEMPTS: u32 = 6;
/// The same under strategies that isolate changes by such conflicts.
pub(super) const MANY_ATTEMPTS: u32 = 16;

/// The base of the other strategies, which override its fields.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "none",
    lock: None,
    mistake: None,
    transaction: Isolation::ReadCommitted,
    read: ReadMethod::Plain,
    guard: WriteGuard::None,
    attempts: ATTEMPTS,
    batches: false,
    data_path: None,
    sends: &[],
    guarantee: Guarantee::Never,
    source: file!(),
    code: include_str!("none.rs"),
};
