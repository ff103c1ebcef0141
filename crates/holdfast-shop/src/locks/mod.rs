//! The locks of the shop, which [`ShopLocks`] acquires: those of the crate `holdfast-lock`, the
//! teaching locks and the [`queue_lock`]. Each has a file, whose header states the guarantee and
//! when it breaks. Tests: `tests/it/locks`, `tests/it/strategy_failures.rs`,
//! `tests/it/strategies.rs`.

mod check_then_del;
mod commands;
mod expire_only;
mod lock;
pub mod priority;
pub mod queue_lock;
mod redis_mark;
mod setnx;
mod setnx_expire;
mod shop_locks;
mod teaching_lock;
mod ttl;
mod waiting_list;

pub use lock::Lock;
pub use priority::Priority;
pub use redis_mark::RedisMark;
pub use shop_locks::{LockRequest, ShopLocks};
pub use waiting_list::{DEFAULT_CAPACITY, QueueDeadlines, QueueOptions, WhenFull};
