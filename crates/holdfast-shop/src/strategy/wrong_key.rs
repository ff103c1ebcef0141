//! `wrong-key`: a correct lock on the wrong key.
//!
//! # Guarantee
//! One *order* is changed by one request at a time. That does not help: two orders share the item
//! that they sell and the account that pays for them.
//!
//! # Breaks when
//! Two orders are for the same item, or one customer pays for two orders at once. Each request
//! locks its own order without waiting and reads the same value. The lock itself works (`owner`),
//! and every test of the lock passes.
//!
//! # Seen in the wild
//! `lock(order.id)`, `lock(request.id)`, `lock(cart.id)`: the key names the request, not the value
//! that changes. Or the key contains a typo, the tenant, or another letter case.

use holdfast_lock::LockKey;

use super::{Mistake, Strategy, none};
use crate::OrderId;
use crate::locks::Lock;

pub(super) const STRATEGY: Strategy = Strategy {
    name: "wrong-key",
    lock: Some(Lock::Owner),
    mistake: Some(Mistake::WrongKey),
    source: file!(),
    code: include_str!("wrong_key.rs"),
    ..none::STRATEGY
};

pub(super) fn keys(order: OrderId) -> Vec<LockKey> {
    vec![order.lock_key()]
}
