//! `atomic`: one conditional update; the ledger entry follows from the values it returns.
//!
//! # Guarantee
//! `set stock = stock + delta where stock + delta >= 0` reads and writes the newest row under the
//! row lock of Postgres, with no gap in between. The decision uses the values that the update
//! returned, in the same transaction; a rejection rolls it back. Several items are changed in
//! sorted order.
//!
//! # Breaks when
//! Never for one number. It cannot express a decision that needs more than the row: a customer's
//! earlier purchases are counted by a second statement, which the row lock of the first makes
//! exact. The row stays locked until the commit, so a hot item still sells one order at a time.
//!
//! # Seen in the wild
//! `update … set stock = stock - 1 where stock > 0`: the usual suggestion of a review.

use super::{Guarantee, ReadMethod, Strategy, none};

pub(super) const STRATEGY: Strategy = Strategy {
    name: "atomic",
    read: ReadMethod::ConditionalUpdate,
    guarantee: Guarantee::Always,
    source: file!(),
    code: include_str!("atomic.rs"),
    ..none::STRATEGY
};
