//! Metrics of waiting for locks and holding them, by strategy.
//!
//! Never by key or user, so that the number of series is bounded. [`crate::metrics`] defines them.

use tokio::time::Instant;

use super::Strategy;
use crate::metrics::{LOCK_HOLD, LOCK_WAIT, LOCK_WAITING_REQUESTS};

/// A request that waits for its locks; counted until dropped.
#[derive(Debug)]
pub(super) struct LockWait {
    strategy: &'static str,
    since: Instant,
}

impl LockWait {
    pub(super) fn begin(strategy: &Strategy) -> Self {
        let strategy = strategy.name;
        metrics::gauge!(LOCK_WAITING_REQUESTS, "strategy" => strategy).increment(1.0);
        Self { strategy, since: Instant::now() }
    }

    /// Records the wait, once the lock module has granted or denied the locks. Cancelled requests
    /// and errors of Redis are not recorded.
    pub(super) fn record(self) {
        metrics::histogram!(LOCK_WAIT, "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        metrics::gauge!(LOCK_WAITING_REQUESTS, "strategy" => self.strategy).decrement(1.0);
    }
}

/// A request that holds its locks; measured until dropped, however it ends. If a lock is left to
/// expire, the time after the drop does not count, because no work is done under it.
#[derive(Debug)]
pub(super) struct LockHold {
    strategy: &'static str,
    since: Instant,
}

impl LockHold {
    pub(super) fn begin(strategy: &Strategy) -> Self {
        Self { strategy: strategy.name, since: Instant::now() }
    }
}

impl Drop for LockHold {
    fn drop(&mut self) {
        metrics::histogram!(LOCK_HOLD, "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
    }
}
