//! What locks cost those who want them, as metrics at `/metrics`.
//!
//! By strategy, never by key or user: there are as many strategies as the code has. What each
//! figure means is said where they are described (`app`).

use tokio::time::Instant;

use super::Strategy;

/// A request that waits for its locks; counted from now until dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    strategy: &'static str,
    since: Instant,
}

impl Waiting {
    pub(super) fn begin(strategy: &Strategy) -> Self {
        let strategy = strategy.name;
        metrics::gauge!("holdfast_lock_waiting_requests", "strategy" => strategy).increment(1.0);
        Self { strategy, since: Instant::now() }
    }

    /// The lock module has said yes or no. (A request that goes away has waited for nothing, and a
    /// Redis that does not answer is no wait either.)
    pub(super) fn answered(self) {
        metrics::histogram!("holdfast_lock_wait_seconds", "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        metrics::gauge!("holdfast_lock_waiting_requests", "strategy" => self.strategy)
            .decrement(1.0);
    }
}

/// A request that has its locks; measured until dropped, however it ends. A lock that is left to
/// expire counts until then: what it blocks afterwards nobody works under.
#[derive(Debug)]
pub(super) struct Holding {
    strategy: &'static str,
    since: Instant,
}

impl Holding {
    pub(super) fn begin(strategy: &Strategy) -> Self {
        Self { strategy: strategy.name, since: Instant::now() }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        metrics::histogram!("holdfast_lock_hold_seconds", "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
    }
}
