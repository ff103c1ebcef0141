//! What keeps two changes of one value apart: a [`Strategy`] is a value that the engine reads.
//!
//! It says which lock is acquired, on what, and when it is released; how the value is read; what
//! the write demands of the row; and which transaction is around both. Each strategy has a file
//! that states its guarantee and when it breaks; [`table`] lists them.

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

use crate::lock::{Guards, LockKey};
use crate::shop::OrderId;
pub use definition::{Guarantee, Guard, Isolation, LockTarget, Read, Release, Strategy};
use exclusion::Exclusion;
pub use table::STRATEGIES;

impl Strategy {
    /// The strategy of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        STRATEGIES.iter().find(|strategy| strategy.name == name)
    }

    /// All names, for an error message.
    pub fn names() -> String {
        STRATEGIES.iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ")
    }

    /// What is locked for a command that changes the values of `keys`.
    pub fn lock_keys(&self, keys: Vec<LockKey>, order: Option<OrderId>) -> Vec<LockKey> {
        match (self.target, order) {
            (LockTarget::Order, Some(order)) => wrong_key::keys(order),
            _ => keys,
        }
    }

    /// What keeps a change under this strategy apart from others, given the acquired locks.
    pub fn exclusion<'g>(&self, locks: &'g Guards) -> Exclusion<'g> {
        exclusion::of(self, locks)
    }
}
