//! `atomic`: one conditional update, and the ledger from what it returns.
//!
//! # Guarantee
//! `set stock = stock + delta where stock + delta >= 0` reads and writes the newest row under
//! Postgres's own lock; there is no moment between. The decision is made on the values that the
//! update returned, in the same transaction; a rejection rolls it back. Several items are changed
//! in sorted order.
//!
//! # Breaks when
//! Never for one number. It can't express a decision that needs more than the row itself: what a
//! customer has already is counted in a statement of its own, behind this one, whose lock on the
//! row makes it exact. And the row stays locked until the commit, so a hot item still sells one
//! order at a time.
//!
//! # Seen in the wild
//! `update … set stock = stock - 1 where stock > 0`: what a review usually asks for.

use super::{Guarantee, Read, Strategy, none};

/// `update … set stock = stock + delta where stock + delta >= 0`.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "atomic",
    read: Read::Reserve,
    guarantee: Guarantee::Always,
    about: "one conditional update: there is nothing between read and write",
    source: file!(),
    code: include_str!("atomic.rs"),
    ..none::STRATEGY
};
