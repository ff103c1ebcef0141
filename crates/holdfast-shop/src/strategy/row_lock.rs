//! `row-lock`: read with `for no key update`, so that Postgres locks the row.
//!
//! # Guarantee
//! From the read to the commit no other transaction reads the row this way or writes it. Rows are
//! locked in sorted order, so two orders with the same items do not deadlock. `for update` would
//! also block every insert that refers to the row, without a benefit.
//!
//! # Breaks when
//! It does not break; it blocks. A process that is paused in its transaction holds the row, and all
//! others wait until Postgres terminates its idle session.
//!
//! # Seen in the wild
//! The usual fix of a lost update, and a good one, until an item becomes hot: one transaction at a
//! time, each with its round trips.

use super::{Guarantee, ReadMethod, Strategy, none};

pub const STRATEGY: Strategy = Strategy {
    name: "row-lock",
    read: ReadMethod::RowLock,
    guarantee: Guarantee::Always,
    source: file!(),
    code: include_str!("row_lock.rs"),
    ..none::STRATEGY
};
