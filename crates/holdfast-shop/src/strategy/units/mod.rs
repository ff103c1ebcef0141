//! `units`: one row per unit; an order locks as many free ones as it wants, and skips those that
//! others have locked.
//!
//! # Guarantee
//! A unit is sold to one order at a time: its row is locked from the read to the commit, and the
//! write demands the version that was read. Orders of one item lock different rows, so none waits
//! for another, and reservation and ledger are one commit. The ledger is per unit (1 → 0, and 0 → 1
//! when it comes back). It applies to items that were made in units, and to no others.
//!
//! # Breaks when
//! It does not oversell; it promises less. Who comes first is not served first. *Sold out* is not
//! final: a unit that another order has locked counts as gone, and is free again if that order is
//! rejected or fails. Each sale leaves dead rows behind, which vacuum has to remove. Rules that
//! need the whole item, such as a limit per customer, need a lock on it again.
//!
//! # Seen in the wild
//! `select … for update skip locked limit n`: seats, tickets and vouchers, and flash sales of large
//! shops. The same statement makes a table a queue of jobs.

pub mod create;
pub mod path;
pub mod statements;

use super::definition::SoldItems;
use super::{Guarantee, ReadMethod, Strategy, none};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: "units",
    read: ReadMethod::RowLock,
    data_path: Some(SoldItems::MadeForIt),
    sends: statements::SENDS,
    guarantee: Guarantee::Always,
    source: file!(),
    code: include_str!("mod.rs"),
    ..none::STRATEGY
};
