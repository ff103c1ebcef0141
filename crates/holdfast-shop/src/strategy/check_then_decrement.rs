//! `check-then-decrement`: the stock is checked when the request begins, and reduced later, by an
//! update without a condition.
//!
//! # Guarantee
//! `set stock = stock + delta` reads and writes the newest row under its lock: no update is lost,
//! and the ledger, which follows from the values that the update returned, has no fork. Nothing
//! ensures that what was checked still holds.
//!
//! # Breaks when
//! Two requests check the last unit before either takes it. Both subtract one, the stock falls
//! below zero, and more is sold than existed. Where a constraint keeps the column at zero or above,
//! Postgres refuses the second update: nothing is oversold, and the customer gets an internal error
//! in place of *sold out*. The check belongs into the update: `atomic`.
//!
//! # Seen in the wild
//! The commonest mistake of real shops: `if product.stock >= 1`, and later
//! `update … set stock = stock - 1`, which object mappers spell `F("stock") - 1`.

use super::{Guarantee, ReadMethod, Strategy, none};

pub(super) const STRATEGY: Strategy = Strategy {
    name: "check-then-decrement",
    read: ReadMethod::CheckThenUpdate,
    guarantee: Guarantee::Never,
    source: file!(),
    code: include_str!("check_then_decrement.rs"),
    ..none::STRATEGY
};
