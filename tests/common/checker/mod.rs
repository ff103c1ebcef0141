//! The history checker: compares responses that clients received with the ledgers.
//!
//! Takes requests as clients saw them ([`ObservedRequest`]) and the ledgers and orders afterwards
//! ([`RecordedState`]), and reports violations of ten invariants ([`Invariant`]), in O(n log n).
//!
//! Guarantees per value: without violations, the responses are linearizable in the ledger's order,
//! with each *sold out* placed in between. (Responses that only another order explains are
//! violations.) Across values: all writes have one order that agrees with every chain and with real
//! time. Time is the machine's monotonic clock; an unknown outcome may take effect at any time
//! after its request.
//!
//! Not proven: that the *sold out*s of several values fit together; the time of an unobserved
//! change, beyond the bounds of its neighbours; an unobserved change that is missing from ledger
//! and value alike; that a rejection for other reasons was necessary. Test:
//! `tests/model/checker_tests/agreement.rs`.

mod chain;
mod input;
mod report;
mod request_checks;
mod request_rules;
mod response;
mod sold_out_rules;
mod spec;
mod transactions;

pub use input::{
    ObservedChange, ObservedOperation, ObservedOutcome, ObservedRequest, RecordedEntry,
    RecordedLedger, RecordedOrder, RecordedState, RecordedValue,
};
pub use report::{Invariant, Violation};

use report::Findings;

/// Returns the violations, in the order of the rules' modules; empty if the history is sound.
#[must_use]
pub fn check(state: &RecordedState, observations: &[ObservedRequest]) -> Vec<Violation> {
    check_counting_steps(state, observations).0
}

/// Runs [`check`] and counts its steps: visited entries, orders and observations, lookups, and
/// comparisons of sorts and searches.
#[doc(hidden)]
pub fn check_counting_steps(
    state: &RecordedState,
    observations: &[ObservedRequest],
) -> (Vec<Violation>, u64) {
    let mut findings = Findings::new(observations);
    let mut ledgers = request_rules::check(state, &mut findings);
    for ledger in &mut ledgers {
        ledger.chains = chain::check(ledger, &mut findings);
    }
    transactions::check(&mut ledgers, &mut findings);
    for ledger in &ledgers {
        sold_out_rules::check(ledger, &mut findings);
    }
    (findings.violations, findings.steps)
}
