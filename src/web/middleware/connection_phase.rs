//! The phase of a connection: idle, receiving the head of a request, or serving a request.
//!
//! The stream of the connection and its requests share it. Each head, the first one of a connection
//! or a later one, must be complete [`HEAD_TIMEOUT`] after its first byte; an idle connection is
//! closed after [`IDLE_TIMEOUT`].
//! Tests: `tests/it/malformed_requests.rs`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// Time in which the head of a request must arrive.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a connection without a request is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
    Request,
}

/// The phase of one connection, and the time at which it began.
#[derive(Debug)]
pub struct ConnectionPhase {
    phase: Cell<Phase>,
    since: Cell<Instant>,
}

/// A request in progress. The connection is idle when this is dropped, with the sent response.
#[derive(Debug)]
pub struct RequestInProgress(Rc<ConnectionPhase>);

/// The phase of a new connection: its first head is due.
impl Default for ConnectionPhase {
    fn default() -> Self {
        Self { phase: Cell::new(Phase::Head), since: Cell::new(Instant::now()) }
    }
}

impl ConnectionPhase {
    pub fn begin_request(self: &Rc<Self>) -> RequestInProgress {
        self.phase.set(Phase::Request);
        RequestInProgress(self.clone())
    }

    /// Notes that bytes arrived: the head of the next request, unless there is a request.
    pub fn receive(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// Returns the end of a phase that waits for the client. It never moves to an earlier time.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::Idle => Some(self.since.get() + IDLE_TIMEOUT),
            Phase::Head => Some(self.since.get() + HEAD_TIMEOUT),
            Phase::Request => None,
        }
    }

    pub fn is_in_head(&self) -> bool {
        self.phase.get() == Phase::Head
    }

    pub fn since(&self) -> Instant {
        self.since.get()
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(Instant::now());
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}
