//! What became of a tick: the words of the scheduler, of `/jobs` and of the metrics.

use holdfast_lock::Holder;
use serde_json::Value;

/// The outcome of a tick on one replica.
#[derive(Debug)]
pub enum RunOutcome {
    /// It is done, with this summary.
    Done(Value),
    /// It failed; if it has a row, it is retried after a pause.
    Failed(String),
    /// The last attempt failed; the run is retried at the next tick.
    Parked(String),
    /// The run ended after a later holder took it over: its result is a stale write.
    Stale,
    /// Its replica was stopped: another replica may run it at once, and the attempt does not count.
    Stopped,
    Busy(Holder),
    AlreadyDone,
    /// Nothing to do yet: a pause is not over, or the run of another tick is open.
    NotDue,
}

impl RunOutcome {
    pub fn label(&self) -> &'static str {
        match self {
            RunOutcome::Done(_) => "done",
            RunOutcome::Failed(_) => "failed",
            RunOutcome::Parked(_) => "parked",
            RunOutcome::Stale => "stale",
            RunOutcome::Stopped => "stopped",
            RunOutcome::Busy(_) => "busy",
            RunOutcome::AlreadyDone => "already",
            RunOutcome::NotDue => "not-yet",
        }
    }

    pub fn was_executed(&self) -> bool {
        !matches!(self, RunOutcome::Busy(_) | RunOutcome::AlreadyDone | RunOutcome::NotDue)
    }
}
