//! Record of a pass: the turns of all clients, and what the judge did to them.

use super::protocol::{Turn, TurnOutcome};
use super::report::ClientId;

/// Times are microseconds of the machine's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) began_us: u64,
    /// End of the work, before the last turns were finished.
    pub(super) ended_us: u64,
    pub(super) turns: Vec<RecordedTurn>,
    pub(super) marks: Vec<Mark>,
    pub(super) stalls: Vec<Stall>,
    /// Time in which no client could reach Redis.
    pub(super) outage: Option<(u64, u64)>,
    /// The reason of an adapter's last answer *error*.
    pub(super) last_error: Option<String>,
}

impl Recording {
    /// Returns the number of turns with this outcome.
    pub(super) fn count(&self, outcome: TurnOutcome) -> u64 {
        self.turns.iter().filter(|turn| turn.turn.outcome == outcome).count() as u64
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedTurn {
    pub(super) id: ClientId,
    pub(super) turn: Turn,
}

/// Something that the judge did to a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) at_us: u64,
    pub(super) id: ClientId,
    /// `paused`, `continued` or `killed`.
    pub(super) event: &'static str,
}

/// Time in which a worker's messages were late: it was stopped, or cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub(super) worker: u32,
    pub(super) from_us: u64,
    pub(super) until_us: u64,
}
