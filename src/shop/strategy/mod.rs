//! Isolation of concurrent changes to one value: a [`Strategy`] is a value that the engine
//! interprets.
//!
//! It states which lock is acquired, on which keys, and when it is released; how the value is read;
//! which condition the write checks; and the transaction around both. Each strategy has a file that
//! states its guarantee and when it breaks; [`table`] lists them.
//!
//! Tests: `tests/it/strategies.rs`, `tests/it/strategy_failures.rs`, `tests/it/strategy_pairs.rs`.

pub mod advisory;
pub mod atomic;
pub mod batched;
pub mod definition;
pub mod early_release;
pub mod exclusion;
pub mod fenced;
pub mod none;
pub mod row_lock;
pub mod serializable;
pub mod table;
pub mod version;
pub mod wrong_key;

use crate::shop::OrderId;
pub use definition::{
    Family, Guarantee, Isolation, LockTarget, PurchaseCount, ReadMethod, ReleaseTime, Strategy,
    WriteGuard,
};
use holdfast_lock::LockKey;
pub use table::STRATEGIES;

impl Strategy {
    /// Finds a strategy by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        STRATEGIES.iter().find(|strategy| strategy.name == name)
    }

    /// Returns all names, for an error message.
    pub fn names() -> String {
        STRATEGIES.iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the lock keys of a command that changes the values of `keys`.
    pub fn lock_keys(&self, keys: Vec<LockKey>, order: Option<OrderId>) -> Vec<LockKey> {
        match (self.target, order) {
            (LockTarget::Order, Some(order)) => wrong_key::keys(order),
            _ => keys,
        }
    }
}
