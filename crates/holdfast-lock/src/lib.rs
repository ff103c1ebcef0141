//! Locks on keys, across tasks and processes: a fenced lock with FIFO queues and handoff on Redis,
//! and the textbook locks to compare it with. See [`LockKind`] for the kinds.
//!
//! ```no_run
//! # async fn example() -> Result<(), holdfast_lock::Error> {
//! use holdfast_lock::{LockKey, Locks, Redis, Settings};
//!
//! let locks = Locks::new(Redis::open("redis://127.0.0.1:6379")?, Settings::default())?;
//! let lease = locks.lock(&LockKey::new("{sku:tea}")?).await?;
//! // Write the fence with the data, and reject a write whose fence is lower than the stored one.
//! println!("fence {}", lease.fence());
//! lease.release().await;
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees: several keys are acquired in sorted order, all or none; a caller that stops waiting
//! leaves nothing locked; a Redis that does not respond is an [`Error`], never reported as *busy*.
//!
//! Does not guarantee that a lease is still held when the work ends: work that outlives its lease
//! overlaps the work of the next holder, and only a fence that the protected resource checks
//! rejects its write. Nor that Redis keeps its data: after a failover ([`redis`]) a lock may be
//! free while a process still holds it.

#![warn(missing_docs)]

pub mod clock;
pub mod fenced;
mod guard;
pub mod inspect;
mod key;
pub mod key_locks;
mod kind;
mod local;
pub mod locks;
pub mod observer;
mod owner;
pub mod process;
mod quorum;
pub mod redis;
mod result;
mod settings;
mod task;
mod watchdog;

pub use fenced::FencedGuard;
pub use guard::{ForeignLease, Guard, Guards};
pub use key::LockKey;
pub use key_locks::{KeyLock, KeyLocks};
pub use kind::{LockKind, Wait};
pub use locks::{AcquireOutcome, AcquireRequest, Locks};
pub use observer::Observer;
pub use redis::Redis;
pub use result::{Error, Holder, Released};
pub use settings::Settings;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
