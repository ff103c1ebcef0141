//! The locks of the shop. [`ShopLocks`] acquires all of them:
//!
//! - those of the crate `holdfast-lock`, which hold what they promise;
//! - the teaching locks: leases in Redis, each with a common mistake, in teaching order
//!   ([`setnx`], [`setnx_expire`], [`ttl`], [`check_then_del`], [`expire_only`]), with their common
//!   code in [`teaching_lock`];
//! - the [`queue`]: one consumer per key instead of a lock, with its [`priority`].
//!
//! Each has a file, whose header states the guarantee and when it breaks; a lesson demonstrates
//! both.
//!
//! Tests: `tests/it/locks`, `tests/it/strategy_failures.rs`, `tests/it/strategies.rs`,
//! `tests/it/bounded_queue.rs`.

mod check_then_del;
mod commands;
mod expire_only;
pub mod priority;
pub mod queue;
mod queue_options;
mod redis_mark;
mod setnx;
mod setnx_expire;
mod shop_locks;
mod teaching_lock;
mod ttl;
mod waiting_list;

pub use priority::Priority;
pub use queue_options::{DEFAULT_CAPACITY, QueueDeadlines, QueueFull, QueueOptions, WhenFull};
pub use redis_mark::RedisMark;
pub use shop_locks::{LockError, LockRequest, Mechanism, ShopLocks};
