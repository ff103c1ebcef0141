//! The ladder: ways to keep two requests apart that people really use, one file each, all of one
//! shape. What each guarantees and when it breaks is said at its top, and shown by a lesson.
//!
//! In teaching order: [`local`]; then leases in Redis that are nearly right, of which [`rung`] has
//! what they share ([`setnx`], [`setnx_expire`], [`ttl`], [`check_then_del`], [`expire_only`]);
//! [`owner`], [`watchdog`] and [`quorum`]; and the [`queue`], which has no lock at all, with its
//! [`priority`].

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
