//! Results of the locks: holders, releases and errors.

use std::fmt;
use std::time::Duration;

use crate::redis::{self, ErrorCause};
use crate::{LeaseId, LockKey};

/// The holder of a lock, from the lock's value in Redis (of a quorum, that of a majority). Unknown
/// fields are `None`.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Holder {
    /// Name of its process ([`crate::Settings::name`]).
    pub process: Option<String>,
    /// Time of acquisition, in milliseconds of Unix time.
    pub since_ms: Option<i64>,
    /// Time until the lease expires, unless it is renewed or released.
    pub remaining: Option<Duration>,
    /// First fence of the process's grant, if the lock has fences. A local handoff uses a later
    /// one.
    pub fence: Option<i64>,
    /// Its lease, if the lock has fences.
    #[doc(hidden)]
    pub lease: Option<LeaseId>,
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until now.
    Held,
    /// The lock was no longer held. The lock of a later holder was not touched.
    Lost,
    /// Redis did not respond, or the task that runs the lock's protocol has panicked; the lock ends
    /// with its lease.
    Unknown,
}

/// A failure to acquire or keep a lock. Contention is an [`crate::AcquireOutcome`], except for a
/// full queue, and for callers of [`crate::Locks::lock`] and [`crate::Locks::with_lock`], which get
/// [`Error::TimedOut`]. Its text says what to check; `Debug` writes the same.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Redis could not be reached, or did not respond in time. It is unknown whether the lock was
    /// acquired; what may have been acquired is being released.
    #[error(
        "Redis does not respond: {0}; check that it runs at its address, with TLS only if that \
         begins with rediss, and try again"
    )]
    Unavailable(redis::Error),
    /// Redis responded with an error, e.g. `WRONGTYPE`, `NOAUTH`, `READONLY`, `OOM` or `LOADING`
    /// ([`redis::Error::code`]), or not as Redis 7. The lock was not acquired, or is being
    /// released.
    #[error("Redis refuses the command: {}; {}", .0, advice(.0))]
    Refused(redis::Error),
    /// The address of Redis is wrong.
    #[error("the address of Redis is wrong: {0}")]
    InvalidAddress(redis::Error),
    /// [`crate::Locks::close`] was called.
    #[error("the locks of this process are closed")]
    Closed,
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
    /// [`crate::MAX_WAITERS`] callers of this process wait for the lock already.
    #[error("too many callers wait for the lock on {0}; try again later")]
    QueueFull(LockKey),
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

/// What [`crate::Locks::probe`] found.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProbeFailure {
    /// No lock can be acquired.
    #[error(transparent)]
    Locks(Error),
    /// Locks can be acquired, but processes can't notify each other: waiters find a free lock only
    /// when they poll.
    #[error("locks work, but waiters are not notified: {0}")]
    Messages(Error),
}

impl ProbeFailure {
    /// Returns the error of Redis.
    #[must_use]
    pub fn error(&self) -> &Error {
        match self {
            ProbeFailure::Locks(error) | ProbeFailure::Messages(error) => error,
        }
    }
}

/// The text, since a `main` that returns an error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns whether Redis may know of the attempt.
    pub(crate) fn was_sent(&self) -> bool {
        !matches!(self, Error::Unavailable(error) if !error.was_sent())
    }

    /// Returns why Redis refuses the command, if it does: `None` if it does not respond.
    #[must_use]
    pub fn refusal(&self) -> Option<redis::Refusal> {
        match self {
            Error::Refused(error) | Error::InvalidAddress(error) => error.refusal(),
            _ => None,
        }
    }
}

impl From<redis::Error> for Error {
    fn from(error: redis::Error) -> Self {
        match error.cause() {
            ErrorCause::Unavailable => Error::Unavailable(error),
            ErrorCause::Refused | ErrorCause::UnexpectedResponse => Error::Refused(error),
            ErrorCause::InvalidAddress => Error::InvalidAddress(error),
        }
    }
}

fn advice(error: &redis::Error) -> &'static str {
    error.refusal().map_or("try again later", |refusal| refusal.advice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn invalid_address_is_explained_once() {
        for url in ["localhost:6379", "redis-sentinel://a:1", "redis://a/x"] {
            let Err(cause) = redis::Redis::open(url) else { panic!("{url} was read") };
            let printed = format!("{:?}", anyhow::Error::from(cause.clone()).context("unusable"));
            assert_eq!(printed.matches("redis-cluster://").count(), 1, "{printed}");

            let error = Error::from(cause);
            assert!(matches!(error, Error::InvalidAddress(_)), "{url}: {error}");
            let printed = format!("{error:?}");
            assert!(printed.starts_with("the address of Redis is wrong: "), "{printed}");
            assert!(!printed.contains("InvalidClientConfig"), "{printed}");
        }
    }
}
