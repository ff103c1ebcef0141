//! `none`: read, compute, write back: the way most shops change a number.
//!
//! # Guarantee
//! Correct while no other request changes the value between the read and the commit. Nothing here
//! makes that so: a lock around it must, and most strategies are this one with a lock around it.
//!
//! # Breaks when
//! Two requests read the same value. Both write what they computed, the second write replaces the
//! first, and one sale leaves no trace in the stock. No constraint is violated. The ledger shows
//! it: both entries carry the same `before` and `version`.
//!
//! # Seen in the wild
//! Any `order.stock = order.stock - 1; save()` of an object mapper.

use super::{Guarantee, Guard, Isolation, LockTarget, Read, Release, Strategy};

/// Attempts at a command whose transaction Postgres ended in favour of another one.
const ATTEMPTS: u32 = 6;
/// The same where losing is how two changes are kept apart.
pub(super) const MANY_ATTEMPTS: u32 = 16;

/// The other strategies say what they do differently.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "none",
    lock: None,
    target: LockTarget::Value,
    release: Release::AfterCommit,
    transaction: Isolation::ReadCommitted,
    read: Read::Plain,
    guard: Guard::None,
    attempts: ATTEMPTS,
    batches: false,
    guarantee: Guarantee::Never,
    about: "no lock at all: two orders read 10 and both write 9",
    source: file!(),
    code: include_str!("none.rs"),
};
