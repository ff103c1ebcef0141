//! The history checker: can the ledgers explain the responses that clients received?
//!
//! Takes requests as clients saw them ([`ObservedRequest`]) and the ledgers and orders afterwards
//! ([`RecordedState`]). Without violations the responses are linearizable: all writes have one
//! order that agrees with each value's chain of entries and with real time, and every *sold out*
//! fits in between. Time is the machine's monotonic clock; an unknown outcome may take effect at
//! any time after its request.
//!
//! Not proven: that the *sold out*s of several values fit together; that a rejection for another
//! reason was necessary. Tests: `tests/model/forged_histories.rs`.

mod input;
mod operations;
mod response;
mod timeline;

pub use input::{
    ObservedChange, ObservedOperation, ObservedOutcome, ObservedRequest, RecordedEntry,
    RecordedOrder, RecordedState,
};

/// A property of every sound history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A value below zero.
    Negative,
    /// Deltas do not add up to the value.
    Sum,
    /// An entry does not begin where the one before it ended, or does not add up.
    Break,
    /// Two entries were computed from the same version.
    Fork,
    /// A fence lower than an earlier one in the chain.
    Fence,
    /// Acknowledged, but not in the ledger.
    Lost,
    /// In the ledger with values other than acknowledged, requested or ordered.
    Differs,
    /// Rejected, but in the ledger.
    Rejected,
    /// Executed more than once.
    Twice,
    /// An entry without its order, or an order without its entry.
    Unmatched,
    /// The order of the ledgers contradicts real time.
    RealTime,
    /// *Sold out*, but not at any moment of the request.
    SoldOut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvariantViolation {
    pub invariant: Invariant,
    /// Describes the request, the entry and the expected state.
    pub text: String,
}

#[derive(Default)]
struct Findings(Vec<InvariantViolation>);

impl Findings {
    fn add(&mut self, invariant: Invariant, text: String) {
        self.0.push(InvariantViolation { invariant, text });
    }
}

/// Returns the violations; none if the history is sound.
#[must_use]
pub fn check(state: &RecordedState, seen: &[ObservedRequest]) -> Vec<InvariantViolation> {
    let mut findings = Findings::default();
    let matched = operations::check(state, seen, &mut findings);
    timeline::check(state, seen, &matched, &mut findings);
    findings.0
}
