//! Progress of a running load.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Upper bound of a recorded latency, in µs.
const MAX_LATENCY_US: u64 = 60_000_000;

#[derive(Debug)]
pub struct LiveCounters {
    sent: AtomicU64,
    completed: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiveSnapshot {
    pub sent: u64,
    /// Requests that received a response, timed out, or lost their connection.
    pub completed: u64,
    /// Median latency of the expected responses so far, in ms; 0 without any.
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Default for LiveCounters {
    fn default() -> Self {
        let (sent, completed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { sent, completed, latency: Mutex::new(histogram()) }
    }
}

impl LiveCounters {
    pub(super) fn record_request(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response, or a request without one; `latency_us` is set for an expected response.
    pub(super) fn record_completion(&self, latency_us: Option<u64>) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        if let Some(latency_us) = latency_us {
            let mut latency = self.latency.lock();
            latency.saturating_record(latency_us.max(1));
        }
    }

    pub fn snapshot(&self) -> LiveSnapshot {
        let latency = self.latency.lock();
        let ms = |quantile| latency.value_at_quantile(quantile) as f64 / 1_000.0;
        let completed = self.completed.load(Ordering::Relaxed);
        // Read last, so that `sent` includes every completed request.
        let sent = self.sent.load(Ordering::Relaxed).max(completed);
        LiveSnapshot { sent, completed, p50_ms: ms(0.5), p99_ms: ms(0.99) }
    }
}

pub(super) fn histogram() -> Histogram<u64> {
    // With bounds, the histogram does not grow; these bounds are valid.
    Histogram::new_with_bounds(1, MAX_LATENCY_US, 3)
        .unwrap_or_else(|_| unreachable!("1 µs to a minute, three digits"))
}
