//! `wrong-key`: a good lock on the wrong thing.
//!
//! # Guarantee
//! One *order* is changed by one request at a time. That is no use here: what two orders share is
//! the item that they sell and the account that they are paid from.
//!
//! # Breaks when
//! Two orders want the same item, or one person pays for two orders at once. Each acquires its own
//! lock, gets it at once, and reads the same value. Everything about the lock is right (`owner`),
//! and every test of the lock is green.
//!
//! # Seen in the wild
//! `lock(order.id)`, `lock(request.id)`, `lock(cart.id)`: the key is the thing at hand and not the
//! thing that is changed. Or a key with a typo, with the tenant in it, or in another case.

use super::{LockTarget, Strategy, none};
use crate::lock::{Kind, LockKey};
use crate::shop::OrderId;

/// `owner`, on the order.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "wrong-key",
    lock: Some(Kind::Owner),
    target: LockTarget::Order,
    about: "owner, on the order instead of the item: two orders never wait for each other",
    source: file!(),
    code: include_str!("wrong_key.rs"),
    ..none::STRATEGY
};

/// What is locked: the order.
pub(super) fn keys(order: OrderId) -> Vec<LockKey> {
    vec![order.lock_key()]
}
