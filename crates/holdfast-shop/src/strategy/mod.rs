//! Isolation of concurrent changes to one value: a [`Strategy`] is a value that the engine
//! interprets, and some have a [`data_path`] of their own. Each has a file or a folder that states
//! its guarantee and when it breaks; [`table`] lists them.
//! Tests: `tests/it/strategies.rs`, `tests/it/strategy_failures.rs`, `tests/it/strategy_pairs.rs`.

pub mod advisory;
pub mod atomic;
pub mod batched;
pub mod check_then_decrement;
pub mod data_path;
pub mod definition;
pub mod early_release;
pub mod exclusion;
pub mod fenced;
pub mod none;
pub mod pre_deduct;
pub mod registry;
pub mod row_lock;
pub mod serializable;
pub mod units;
pub mod version;
pub mod wrong_key;

use super::command::Command;
pub use definition::{Family, Guarantee, Isolation, Mistake, ReadMethod, Strategy, WriteGuard};
use holdfast_lock::LockKey;
pub use registry::STRATEGIES;

impl Strategy {
    pub fn named(name: &str) -> Option<&'static Self> {
        STRATEGIES.iter().find(|strategy| strategy.name == name)
    }

    pub fn names() -> String {
        STRATEGIES.iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ")
    }

    pub fn lock_keys(&self, command: &dyn Command) -> Vec<LockKey> {
        if self.mistake == Some(Mistake::WrongKey)
            && let Some(order) = command.order()
        {
            return wrong_key::keys(order);
        }
        command.reads().lock_keys()
    }
}
