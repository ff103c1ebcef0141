//! `wrong-key`: a good lock on the wrong thing.
//!
//! # Guarantee
//! Nobody works on one *order* twice at a time. That is no use here: what two orders share is the
//! item that they sell and the account that they are paid from.
//!
//! # Breaks when
//! Two orders want the same item, or one person pays for two orders at once. Each takes its own
//! lock, gets it at once, and reads the same value. Everything about the lock is right (`owner`),
//! and every test of the lock is green.
//!
//! # Seen in the wild
//! `lock(order.id)`, `lock(request.id)`, `lock(cart.id)`: the key is the thing at hand and not the
//! thing that is changed. Or a key with a typo, with the tenant in it, or in another case.

use crate::lock::LockKey;
use crate::shop::OrderId;

/// What is locked: the order.
#[must_use]
pub fn keys(order: OrderId) -> Vec<LockKey> {
    vec![order.lock_key()]
}
