//! What the lab asks of this replica's worker.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Strategy;
use crate::probe::Point;

/// Upper bound of the time for which a request of the lab applies: its sender may be gone.
pub const LAB_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request of the lab to a worker.
#[derive(Debug, Clone, Copy)]
pub enum LabRequest {
    /// Do nothing for this time.
    Rest(Duration),
    /// Pause once, at the next orders to process; with the server's own strategy if it is `None`.
    Pause { at: Point, strategy: Option<&'static Strategy> },
}

/// The order expiry of this replica: the lab's request to its worker, and when that ends. Cheap to
/// clone.
#[derive(Debug, Clone, Default)]
pub struct OrderExpiry(Arc<Mutex<Option<(LabRequest, Instant)>>>);

impl OrderExpiry {
    /// Replaces the lab's request to this replica's worker; `None` withdraws it.
    pub fn set_lab_request(&self, request: Option<LabRequest>) {
        let length = match request {
            Some(LabRequest::Rest(length)) => length,
            _ => LAB_REQUEST_TIMEOUT,
        };
        *self.0.lock() = request.map(|request| (request, Instant::now() + length));
    }

    pub(super) fn is_resting(&self) -> bool {
        matches!(*self.0.lock(), Some((LabRequest::Rest(_), until)) if Instant::now() < until)
    }

    /// Takes the pause, if it has not ended.
    pub(super) fn take_pause(&self) -> Option<LabRequest> {
        let mut request = self.0.lock();
        let (pause, until) =
            request.take_if(|(request, _)| matches!(request, LabRequest::Pause { .. }))?;
        (Instant::now() < until).then_some(pause)
    }
}
