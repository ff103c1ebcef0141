//! Metrics of waiting for locks and holding them, by strategy, and of the shop's pools.
//!
//! Never by key or user, so that the number of series is bounded. [`crate::metrics`] defines them.

use tokio::time::Instant;

use super::{Shop, Strategy, passwords};
use crate::metrics::{
    LOCK_HOLD, LOCK_WAIT, LOCK_WAITING_REQUESTS, PASSWORD_MAX_WAITING, PASSWORD_WAITING,
    POOL_CONNECTIONS, POOL_MAX_CONNECTIONS,
};

/// Records the state of the pool of connections and of the queue of password hashes.
pub fn record_pools(shop: &Shop) {
    let (in_use, idle) = shop.pool.connections();
    metrics::gauge!(POOL_CONNECTIONS, "state" => "in-use").set(in_use);
    metrics::gauge!(POOL_CONNECTIONS, "state" => "idle").set(idle);
    metrics::gauge!(POOL_MAX_CONNECTIONS).set(shop.pool.max_connections());
    let (waiting, max) = passwords::queue_length();
    metrics::gauge!(PASSWORD_WAITING).set(waiting as f64);
    metrics::gauge!(PASSWORD_MAX_WAITING).set(max as f64);
}

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
