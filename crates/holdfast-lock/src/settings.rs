//! Settings of the locks of one process.

use std::sync::Arc;
use std::time::Duration;

use crate::fenced;
use crate::observer::{NoObserver, Observer};

/// Timing of the locks, and the location of their keys.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Start of every Redis key: `holdfast:`, except in tests, which share one Redis.
    pub prefix: String,
    /// Name of the replica, shown as the holder. Without a name, the first eight digits of the
    /// process's UUID are shown.
    pub name: Option<String>,
    /// Duration of a lease; the fenced lock has its own ([`fenced::Timing`]).
    pub ttl: Duration,
    /// Mean pause between two attempts of a waiter; jitter varies it by up to half.
    pub retry: Duration,
    /// Maximum time to wait for a lock.
    pub timeout: Duration,
    /// Timing of the fenced lock.
    pub fenced: fenced::Timing,
    /// Receives the events of the fenced lock.
    pub observer: Arc<dyn Observer>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "holdfast:".to_owned(),
            name: None,
            // Longer than the longest request (8 s): no lease expires under a healthy holder.
            ttl: Duration::from_secs(10),
            retry: Duration::from_millis(50),
            timeout: Duration::from_secs(5),
            fenced: fenced::Timing::default(),
            observer: Arc::new(NoObserver),
        }
    }
}
