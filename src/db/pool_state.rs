//! Results of the last calls of a pool: they distinguish a Postgres that is unavailable from one
//! that is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct PoolState {
    /// Number of connections that callers have.
    in_use: AtomicU32,
    last_results: Mutex<LastResults>,
    /// Notified when a failure is recorded.
    failure: Notify,
}

#[derive(Debug, Default)]
struct LastResults {
    responded_at: Option<Instant>,
    /// The last failure since the last response, and its cause.
    failed: Option<(Instant, String)>,
}

impl PoolState {
    pub(super) fn record_response(&self) {
        let responded_at = Some(Instant::now());
        *self.last_results.lock() = LastResults { responded_at, failed: None };
    }

    /// Records the failure of a call, unless Postgres has responded since it began.
    pub(super) fn record_failure(&self, began: Instant, cause: String) {
        let mut last = self.last_results.lock();
        if last.responded_at.is_none_or(|at| at < began) {
            last.failed = Some((Instant::now(), cause));
            self.failure.notify_waiters();
        }
    }

    /// Waits for a failure at `from` or later that follows the last response.
    pub(super) async fn failure_from(&self, from: Instant) {
        loop {
            let notified = self.failure.notified();
            if self.last_results.lock().failed.as_ref().is_some_and(|(at, _)| *at >= from) {
                return;
            }
            notified.await;
        }
    }

    /// Returns the cause of a failure that is at most `age` old and follows the last response.
    pub(super) fn failure_within(&self, age: Duration) -> Option<String> {
        let last = self.last_results.lock();
        last.failed.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, cause)| cause.clone())
    }

    pub(super) fn has_responded_since(&self, began: Instant) -> bool {
        self.last_results.lock().responded_at.is_some_and(|at| at >= began)
    }

    pub(super) fn connections_in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }
}

/// Counts a connection as in use until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionInUse(Arc<PoolState>);

impl ConnectionInUse {
    pub(super) fn new(state: &Arc<PoolState>) -> Self {
        state.in_use.fetch_add(1, Ordering::Relaxed);
        Self(state.clone())
    }
}

impl Drop for ConnectionInUse {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}
