//! Requests of the lab to this replica's worker: rest, or pause once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::probe::Point;
use crate::shop::Strategy;

/// Upper bound of the time for which a request of the lab applies: its sender may be gone.
pub const LAB_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request of the lab to a worker.
#[derive(Debug, Clone, Copy)]
pub enum LabRequest {
    /// Do nothing for this time; [`LAB_REQUEST_TIMEOUT`] at most.
    Rest(Duration),
    /// Pause once, at the next orders to process.
    Pause {
        at: Point,
        /// Strategy to use; the server's own if `None`.
        strategy: Option<&'static Strategy>,
    },
}

/// The current request, and when it ends. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct LabRequests(Arc<Mutex<Option<(LabRequest, Instant)>>>);

impl LabRequests {
    pub(super) fn set(&self, request: Option<LabRequest>) {
        let length = match request {
            Some(LabRequest::Rest(length)) => length.min(LAB_REQUEST_TIMEOUT),
            _ => LAB_REQUEST_TIMEOUT,
        };
        *self.0.lock() = request.map(|request| (request, Instant::now() + length));
    }

    pub(super) fn is_resting(&self) -> bool {
        matches!(*self.0.lock(), Some((LabRequest::Rest(_), until)) if Instant::now() < until)
    }

    /// Takes the pause, if it has not ended.
    pub(super) fn take_pause(&self) -> Option<LabRequest> {
        let is_pause = |(request, _): &mut _| matches!(request, LabRequest::Pause { .. });
        let (pause, until) = self.0.lock().take_if(is_pause)?;
        (Instant::now() < until).then_some(pause)
    }
}
