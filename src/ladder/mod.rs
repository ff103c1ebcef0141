//! The ladder: locks in common use, in teaching order, one file each, all of one shape. Each header
//! states the guarantee and when it breaks; a lesson demonstrates both.
//!
//! - Leases in Redis that are almost right, with their common code in [`rung`]: [`setnx`],
//!   [`setnx_expire`], [`ttl`], [`check_then_del`], [`expire_only`].
//! - [`queue`]: a queue with one consumer instead of a lock, with its [`priority`].
//!
//! The locks that hold what they promise are those of the crate `holdfast-lock`; [`ShopLocks`]
//! acquires both.
//!
//! Tests: `tests/locks`, `tests/it/ladder.rs`, `tests/it/strategies.rs`,
//! `tests/it/bounded_queue.rs`.

pub mod check_then_del;
mod commands;
pub mod expire_only;
mod locks;
pub mod priority;
pub mod queue;
mod queue_options;
pub mod rung;
pub mod setnx;
pub mod setnx_expire;
pub mod ttl;
mod waiting_list;

pub use locks::{LockError, LockRequest, Mechanism, ShopLocks};
pub use priority::Priority;
pub use queue_options::{DEFAULT_CAPACITY, QueueDeadlines, QueueFull, QueueOptions, WhenFull};
pub use rung::Rung;
