//! The ladder: locks in common use, in teaching order, one file each, all of one shape. Each header
//! states the guarantee and when it breaks; a lesson demonstrates both.
//!
//! - [`local`]: a mutex in this process.
//! - Leases in Redis that are almost right, with their common code in [`rung`]: [`setnx`],
//!   [`setnx_expire`], [`ttl`], [`check_then_del`], [`expire_only`].
//! - [`owner`], [`watchdog`], [`quorum`]: the textbook leases.
//! - [`queue`]: a queue with one consumer instead of a lock, with its [`priority`].
//!
//! Tests: `tests/lock/rungs.rs`, `tests/lock/quorum.rs`, `tests/lock/queue.rs`,
//! `tests/it/ladder.rs`, `tests/it/strategies.rs`, `tests/it/bounded.rs`.

pub mod check_then_del;
pub mod expire_only;
mod line;
pub mod local;
pub mod owner;
pub mod priority;
pub mod queue;
pub mod quorum;
pub mod rung;
pub mod setnx;
pub mod setnx_expire;
pub mod ttl;
pub mod watchdog;
