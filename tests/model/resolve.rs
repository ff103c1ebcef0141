//! How a process resolves the unknown outcome of its write.
//!
//! A write that has not begun is invisible to every lookup. Only `Invalidate` makes sure that it
//! matches nothing when it begins. Tests: `unknown` and `strategy`.

use crate::database::LateStatement;
use crate::engine::{Engine, Moves, Phase, State};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Looks the key records up.
    LookUp,
    /// Invalidates the guard, then looks the key records up in a new statement.
    Invalidate,
    /// Mutant: both in one statement, whose snapshot is from before its wait for a running write.
    InOneStatement,
    /// Mutant: looks up, then invalidates.
    LookUpFirst,
}

impl Engine {
    /// The next step from an unknown outcome. A statement that invalidates may be late as well.
    pub fn resolve(&self, state: &State, who: usize) -> Moves {
        let at = state.processes[who].at;
        let mut moves = Vec::new();
        let invalidated = |at| {
            let mut next = state.clone();
            next.database.invalidate();
            next.processes[who].at = at;
            next
        };
        let looked_up = |otherwise| look_up(state, who, otherwise);
        let is_free = state.database.running.is_none();
        match (self.resolution, at) {
            (Resolution::LookUp, _) | (Resolution::Invalidate, Phase::Invalidated) => {
                moves.push(("look up", looked_up(Phase::NotWritten)));
            }
            (Resolution::InOneStatement, Phase::Unknown) => {
                moves.push(("begin to invalidate", looked_up(Phase::Invalidating)));
            }
            (Resolution::LookUpFirst, Phase::Unknown) => {
                moves.push(("look up", looked_up(Phase::Invalidating)));
            }
            (Resolution::Invalidate, _) if is_free => {
                moves.push(("invalidate", invalidated(Phase::Invalidated)));
            }
            (_, Phase::Invalidating) if is_free => {
                moves.push(("invalidate", invalidated(Phase::NotWritten)));
            }
            _ => {}
        }
        if self.resolution == Resolution::Invalidate && at == Phase::Unknown && state.faults > 0 {
            let mut late = state.clone();
            late.faults -= 1;
            late.database.send_late(LateStatement::Invalidate);
            moves.push(("time out invalidating", late));
        }
        moves
    }
}

/// Finds the keys done, or goes on with those that have no record.
pub fn look_up(state: &State, who: usize, otherwise: Phase) -> State {
    let mut next = state.clone();
    let process = &mut next.processes[who];
    process.pending &= !state.database.recorded();
    process.at = if process.pending == 0 { Phase::Finished } else { otherwise };
    next
}
