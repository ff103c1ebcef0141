//! Events of the fenced lock, for metrics and logs.

use std::fmt;

/// Receives the events of the fenced locks of one process.
///
/// Called by the task that runs a key's protocol: an implementation must neither block nor panic.
/// Events carry no key, because a key must never be a metric's label.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles one event.
    fn observe(&self, event: Event);
}

/// An event of a fenced lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A caller joined the queue of this process.
    Joined {
        /// Number of waiters of this process before it.
        queue_length: usize,
    },
    /// The lock was acquired.
    Acquired(Source),
    /// The lease was renewed.
    Renewed,
    /// The lease was found lost before its release: it expired, or Redis lost it.
    Lost,
    /// This process holds a key for which another process waits.
    ContentionStarted,
    /// A key is no longer contended.
    ContentionEnded,
}

/// Origin of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The lock was free, or this process acquired it again as it released it: no other process
    /// waited for it.
    Free,
    /// The previous holder, in this process, handed it off.
    LocalHandoff,
    /// The previous holder, in another process, handed it off.
    RemoteHandoff,
    /// A poll found the lock granted or free: a message was lost, or the holder died.
    Poll,
}

impl Source {
    /// Returns the name, for a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Free => "free",
            Source::LocalHandoff => "local_handoff",
            Source::RemoteHandoff => "remote_handoff",
            Source::Poll => "poll",
        }
    }
}

/// Records the events with the crate `metrics`, by the names of [`metric_names`].
#[derive(Debug, Clone, Copy, Default)]
pub struct MetricsObserver;

/// Names of the metrics that [`MetricsObserver`] records.
pub mod metric_names {
    /// Counter of acquisitions, with the label `source` ([`super::Source::name`]).
    pub const ACQUISITIONS: &str = "holdfast_lock_acquisitions_total";
    /// Counter of renewed leases.
    pub const RENEWALS: &str = "holdfast_lock_renewals_total";
    /// Counter of lost leases.
    pub const LOST: &str = "holdfast_lock_lost_total";
    /// Histogram of the number of waiters of this process before a new one.
    pub const QUEUE_LENGTH: &str = "holdfast_lock_queue_requests";
    /// Gauge of the keys that this process holds while another process waits for them.
    pub const CONTENDED_KEYS: &str = "holdfast_lock_contended_keys";
}

impl Observer for MetricsObserver {
    fn observe(&self, event: Event) {
        use metric_names::{ACQUISITIONS, CONTENDED_KEYS, LOST, QUEUE_LENGTH, RENEWALS};

        match event {
            Event::Joined { queue_length } => metrics::histogram!(QUEUE_LENGTH)
                .record(u32::try_from(queue_length).map_or(f64::INFINITY, f64::from)),
            Event::Acquired(source) => {
                metrics::counter!(ACQUISITIONS, "source" => source.name()).increment(1);
            }
            Event::Renewed => metrics::counter!(RENEWALS).increment(1),
            Event::Lost => metrics::counter!(LOST).increment(1),
            Event::ContentionStarted => metrics::gauge!(CONTENDED_KEYS).increment(1.0),
            Event::ContentionEnded => metrics::gauge!(CONTENDED_KEYS).decrement(1.0),
        }
    }
}
