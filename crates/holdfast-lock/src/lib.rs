//! Locks on keys across processes, with fencing tokens, FIFO queues and handoff, on Redis.
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

// What is hidden is for the other crates of the workspace, and may change in any version.
#[doc(hidden)]
pub mod clock;
#[cfg(test)]
mod explored;
pub mod fenced;
mod guard;
pub mod idempotency_locks;
pub mod inspect;
mod key;
mod kind;
mod lease;
mod local;
mod locks;
mod mail;
pub mod observer;
mod owned_key;
mod owner;
#[cfg(feature = "sqlx-postgres")]
pub mod postgres;
mod process;
mod quorum;
pub mod redis;
mod result;
#[cfg(test)]
mod seeded;
mod settings;
mod time;
mod waiters;
mod watchdog;

pub use fenced::{FencedGuard, Timing};
#[doc(hidden)]
pub use guard::ForeignLease;
pub use guard::{Guard, Guards};
pub use idempotency_locks::{IdempotencyLockResult, IdempotencyLocks};
pub use key::LockKey;
pub use kind::{LockKind, Wait};
#[doc(hidden)]
pub use locks::sorted;
pub use locks::{AcquireOutcome, AcquireRequest, Locks};
#[doc(hidden)]
pub use mail::{Delivery, Inbox, InboxState, LeaseId};
pub use observer::Observer;
pub use redis::Redis;
pub use redis::{TlsFailure, TlsSettings};
pub use result::{Error, Holder, ProbeFailure, Released};
pub use settings::Settings;
pub use waiters::MAX_WAITERS;
