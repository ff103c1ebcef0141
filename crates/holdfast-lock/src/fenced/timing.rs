//! Timing of the fenced lock.

use std::time::Duration;

/// Timing of the fenced lock.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Duration of a lease between renewals, 10 ms to 24 h. It is renewed every third of it.
    pub ttl: Duration,
    /// Time within which a process must confirm a grant, before it expires.
    pub grant_ttl: Duration,
    /// Interval at which a waiting process polls, in case a message was lost: 1 ms to 10 s, and
    /// with a round trip less than half of `grant_ttl`. A process that does not poll for three
    /// intervals is skipped.
    pub poll_interval: Duration,
    /// Time for which a process continues local handoffs after it learns that another process
    /// waits: at most eight, and only to waiters that joined before that.
    pub local_handoff_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(3),
            grant_ttl: Duration::from_millis(600),
            poll_interval: Duration::from_millis(200),
            local_handoff_period: Duration::from_millis(100),
        }
    }
}
