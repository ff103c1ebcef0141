//! Events of the locks, for metrics and logs.

use std::fmt;
use std::time::Duration;

use crate::LockKind;

/// Receives the events of the locks of one process, of every kind.
///
/// Called by the task that runs a key's protocol, and by callers: an implementation must neither
/// block nor panic. Events carry no key, because a key must never be a metric's label.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles one event.
    fn observe(&self, event: Event);
}

/// An event of a lock. Each [`Event::Acquired`] is followed by exactly one [`Event::Lost`],
/// [`Event::Released`] or [`Event::LeftToExpire`], unless the process ends before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A caller joined the queue of this process for a fenced lock.
    Joined {
        /// Number of waiters of this process before it.
        queue_length: usize,
    },
    /// A caller has acquired the lock.
    Acquired {
        /// The kind of the lock.
        kind: LockKind,
        /// Who had the lock before; always [`Source::Free`] for a lock that is not fenced.
        source: Source,
        /// Time from the call until the lock was acquired.
        waited: Duration,
    },
    /// The lease was renewed.
    Renewed {
        /// The kind of the lock.
        kind: LockKind,
    },
    /// The lease was found lost, before or by its release: it expired, or Redis lost it.
    Lost {
        /// The kind of the lock.
        kind: LockKind,
        /// Time from the acquisition until this was found.
        held: Duration,
    },
    /// The lock was released.
    Released {
        /// The kind of the lock.
        kind: LockKind,
        /// Time from the acquisition until the release was requested; of a lock that is not
        /// fenced, until it was done.
        held: Duration,
        /// True if Redis, or for a handoff in this process its clock, confirmed that the lock was
        /// held until now. False without a response, and for a dropped guard that is not fenced.
        confirmed: bool,
    },
    /// The lock was left to expire.
    LeftToExpire {
        /// The kind of the lock.
        kind: LockKind,
        /// Time from the acquisition.
        held: Duration,
    },
    /// This process holds a fenced key for which another process waits.
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
    /// Counter of acquisitions, with the labels `kind` ([`crate::LockKind::name`]) and `source`
    /// ([`super::Source::name`]).
    pub const ACQUISITIONS: &str = "holdfast_lock_acquisitions_total";
    /// Counter of renewed leases, with the label `kind`.
    pub const RENEWALS: &str = "holdfast_lock_renewals_total";
    /// Counter of lost leases, with the label `kind`.
    pub const LOST: &str = "holdfast_lock_lost_total";
    /// Histogram of the seconds from the call to the acquisition, with the label `kind`.
    pub const ACQUIRE_TIME: &str = "holdfast_lock_acquire_seconds";
    /// Histogram of the seconds from the acquisition to its end, with the label `kind`.
    pub const HOLD_TIME: &str = "holdfast_lock_held_seconds";
    /// Histogram of the number of waiters of this process before a new one.
    pub const QUEUE_LENGTH: &str = "holdfast_lock_queue_requests";
    /// Gauge of the keys that this process holds while another process waits for them.
    pub const CONTENDED_KEYS: &str = "holdfast_lock_contended_keys";
}

impl Observer for MetricsObserver {
    fn observe(&self, event: Event) {
        use metric_names::{
            ACQUIRE_TIME, ACQUISITIONS, CONTENDED_KEYS, LOST, QUEUE_LENGTH, RENEWALS,
        };

        match event {
            Event::Joined { queue_length } => metrics::histogram!(QUEUE_LENGTH)
                .record(u32::try_from(queue_length).map_or(f64::INFINITY, f64::from)),
            Event::Acquired { kind, source, waited } => {
                let (kind, source) = (kind.name(), source.name());
                metrics::counter!(ACQUISITIONS, "kind" => kind, "source" => source).increment(1);
                metrics::histogram!(ACQUIRE_TIME, "kind" => kind).record(waited.as_secs_f64());
            }
            Event::Renewed { kind } => {
                metrics::counter!(RENEWALS, "kind" => kind.name()).increment(1);
            }
            Event::Lost { kind, held } => {
                metrics::counter!(LOST, "kind" => kind.name()).increment(1);
                record_hold(kind, held);
            }
            Event::Released { kind, held, .. } | Event::LeftToExpire { kind, held } => {
                record_hold(kind, held);
            }
            Event::ContentionStarted => metrics::gauge!(CONTENDED_KEYS).increment(1.0),
            Event::ContentionEnded => metrics::gauge!(CONTENDED_KEYS).decrement(1.0),
        }
    }
}

fn record_hold(kind: LockKind, held: Duration) {
    use metric_names::HOLD_TIME;

    metrics::histogram!(HOLD_TIME, "kind" => kind.name()).record(held.as_secs_f64());
}
