//! Kinds of locks, and how a caller waits for one.

use std::time::Duration;

use crate::clock::jittered;
use crate::lease::Leases;
use crate::time::{Instant, sleep_until};

/// Kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockKind {
    /// A FIFO mutex in this process.
    Local,
    /// The textbook lease in Redis.
    Owner,
    /// The textbook lease, renewed while it is held.
    Watchdog,
    /// Redlock: the renewed lease on a majority of several servers ([`crate::Locks::with_quorum`]).
    Quorum,
    /// The lock of this crate: fenced, renewed, with queue and handoff.
    Fenced,
}

impl LockKind {
    /// Returns whether the lock lives in Redis.
    #[doc(hidden)]
    #[must_use]
    pub fn needs_redis(self) -> bool {
        self != LockKind::Local
    }

    /// Returns the name, for a metric's label: `local`, `owner`, `watchdog`, `quorum` or `fenced`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LockKind::Local => "local",
            LockKind::Owner => "owner",
            LockKind::Watchdog => "watchdog",
            LockKind::Quorum => "quorum",
            LockKind::Fenced => "fenced",
        }
    }

    /// Returns the wait modes of this lock; the first is its default.
    #[must_use]
    pub fn wait_modes(self) -> &'static [Wait] {
        match self {
            LockKind::Local | LockKind::Fenced => &[Wait::Notify, Wait::Try],
            LockKind::Owner | LockKind::Watchdog | LockKind::Quorum => &[Wait::Retry, Wait::Try],
        }
    }
}

/// Behaviour when the lock is held by another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Returns at once.
    Try,
    /// Polls until the timeout.
    Retry,
    /// Joins a queue and is handed the lock.
    Notify,
}

impl Wait {
    /// Returns the mode of that name: `try`, `retry` or `notify`.
    #[doc(hidden)]
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "try" => Some(Wait::Try),
            "retry" => Some(Wait::Retry),
            "notify" => Some(Wait::Notify),
            _ => None,
        }
    }
}

/// A request for a lock whose waiters poll.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollingRequest<'a> {
    pub kind: LockKind,
    pub asked_us: u64,
    pub leases: &'a Leases,
    pub redis_key: &'a str,
    pub ttl: Duration,
    pub max_hold: Option<Duration>,
    pub wait: Wait,
    pub until: Instant,
    pub interval: Duration,
    pub takes_mail: bool,
}

impl PollingRequest<'_> {
    /// Waits for the next attempt. Returns `false` if there is none.
    pub(crate) async fn next_attempt(&self) -> bool {
        let next = Instant::now() + jittered(self.interval);
        let polls = self.wait != Wait::Try && next <= self.until;
        if polls {
            sleep_until(next).await;
        }
        polls
    }
}
