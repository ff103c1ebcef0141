//! Options of a request that joins a queue.

use std::time::Duration;

use tokio::time::Instant;

use super::priority::Priority;

/// Default capacity of a queue, per priority. (High priority has places of its own, so that waiting
/// buyers cannot keep out the restock they wait for.)
pub const DEFAULT_CAPACITY: usize = 1_024;

/// The behaviour of a full queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// `add`: fails with [`QueueFull`].
    #[default]
    Fail,
    /// `offer`: rejects with a value, [`holdfast_lock::AcquireOutcome::Busy`].
    Reject,
    /// `put`: waits for a place until the request's deadline.
    Wait,
    /// `offer` with a timeout: waits for a place this long; without one, as long as a request waits
    /// for any lock ([`holdfast_lock::Settings::acquire_timeout`]).
    WaitFor(Option<Duration>),
}

/// The queue has no place, and the request does not wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// The options of a request that joins a queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueOptions {
    /// Behaviour if the queue is full.
    pub when_full: WhenFull,
    /// Defaults to [`Priority::Normal`].
    pub priority: Option<Priority>,
    /// Capacity per priority, [`DEFAULT_CAPACITY`] by default. Applies if the request creates
    /// the key's queue; an existing queue keeps its capacity.
    pub capacity: Option<usize>,
}

impl QueueOptions {
    /// Returns the time limits of a request that may wait for a lock until `until` and ends at
    /// `deadline`.
    #[must_use]
    pub fn deadlines(&self, deadline: Instant, until: Instant) -> QueueDeadlines {
        let place = match self.when_full {
            WhenFull::Wait => deadline,
            WhenFull::WaitFor(Some(time)) => deadline.min(Instant::now() + time),
            WhenFull::WaitFor(None) | WhenFull::Fail | WhenFull::Reject => until,
        };
        QueueDeadlines { place, service: until.max(place) }
    }
}

/// The time limits of a request's two waits.
#[derive(Debug, Clone, Copy)]
pub struct QueueDeadlines {
    /// Latest time to get a place in the queue.
    pub place: Instant,
    /// Latest time to be served.
    pub service: Instant,
}
