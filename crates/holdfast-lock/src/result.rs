//! Results of the locks: holders, releases and errors.

use std::time::Duration;

use crate::redis;

/// The holder of a lock, from the lock's value in Redis, for [`crate::LockKind::Quorum`] from the
/// value on a majority of the nodes. Unknown fields are `None`.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Holder {
    /// Name of its process ([`crate::Settings::name`]).
    pub process: Option<String>,
    /// Time of acquisition, in milliseconds of Unix time.
    pub since_ms: Option<i64>,
    /// Time until the lease expires, unless it is renewed or released.
    pub remaining: Option<Duration>,
    /// First fence of the process's grant, if the lock has fences. After a local handoff, the
    /// current holder in that process has a later fence of the same grant.
    pub fence: Option<i64>,
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lock was held until now.
    Held,
    /// The lock was no longer held. The lock of a later holder was not touched.
    Lost,
    /// Redis did not respond; the lock ends with its lease.
    Unknown,
}

/// A failure to acquire or keep a lock. Contention is an [`crate::AcquireOutcome`], except for
/// callers of [`crate::Locks::lock`] and [`crate::Locks::with_lock`], which get
/// [`Error::TimedOut`].
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Redis did not respond, or not in time. It is unknown whether the lock was acquired; what may
    /// have been acquired is being released.
    #[error("Redis does not respond: {0}")]
    Unavailable(#[from] redis::Error),
    /// The lease has expired.
    #[error("the lock was lost: its lease has run out")]
    Lost,
    /// Another owner held the lock until the timeout.
    #[error("the lock was held by another owner for {waited:?}")]
    TimedOut {
        /// Time waited.
        waited: Duration,
        /// The last holder, if known.
        holder: Box<Holder>,
    },
    /// No quorum nodes are configured.
    #[error("no quorum nodes are configured")]
    NoQuorum,
    /// A field of [`crate::Settings`], or a TTL, is out of range.
    #[error("invalid settings: {0}")]
    InvalidSettings(&'static str),
    /// The name cannot be that of a lock: see [`crate::LockKey::new`].
    #[error("{name:?} is not a valid lock key: {reason}")]
    InvalidKey {
        /// The name.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
}
