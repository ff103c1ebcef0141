//! Options of a request that joins a queue.

use std::time::Duration;

use tokio::time::Instant;

use super::priority::Priority;

/// Default capacity of a queue, per priority. (High priority has places of its own, so that waiting
/// buyers cannot keep out the restock they wait for.)
pub const DEFAULT_CAPACITY: usize = 1_024;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// `add`: fails with [`holdfast_lock::Error::QueueFull`].
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

#[derive(Debug, Clone, Copy, Default)]
pub struct QueueOptions {
    pub when_full: WhenFull,
    pub priority: Option<Priority>,
    /// Capacity per priority, [`DEFAULT_CAPACITY`] by default. Applies if the request creates
    /// the key's queue; an existing queue keeps its capacity.
    pub capacity: Option<usize>,
}

impl QueueOptions {
    /// Returns the time limits of a request that may wait for a lock until `until` and ends at
    /// `deadline`.
    pub fn deadlines(&self, deadline: Instant, until: Instant) -> QueueDeadlines {
        let place = match self.when_full {
            WhenFull::Wait => deadline,
            WhenFull::WaitFor(Some(time)) => deadline.min(Instant::now() + time),
            WhenFull::WaitFor(None) | WhenFull::Fail | WhenFull::Reject => until,
        };
        QueueDeadlines { place, service: until.max(place) }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct QueueDeadlines {
    pub place: Instant,
    pub service: Instant,
}
