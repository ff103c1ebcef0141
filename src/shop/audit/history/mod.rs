//! The history checker: compares responses that clients received with the ledgers.
//!
//! Takes requests as clients saw them ([`Observation`]) and the books afterwards ([`Books`]), and
//! reports violations of ten invariants ([`Rule`]), in O(n log n).
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
//! `tests/checker/agreement.rs`.

mod across;
mod answer;
mod books;
mod chain;
mod clerk;
mod deeds;
mod load;
mod moments;
mod report;
mod spec;

pub use books::{Asked, Books, Change, Entry, Ledger, Observation, Order, Outcome, Value};
pub use load::load;
pub use report::{Rule, Violation};

use report::Findings;

/// Returns the violations, in the order of the rules' modules; empty if the history is sound.
#[must_use]
pub fn check(books: &Books, observations: &[Observation]) -> Vec<Violation> {
    counted(books, observations).0
}

/// Runs [`check`] and counts its steps: visited entries, orders and observations, lookups, and
/// comparisons of sorts and searches.
#[doc(hidden)]
pub fn counted(books: &Books, observations: &[Observation]) -> (Vec<Violation>, u64) {
    let mut findings = Findings::default();
    let settled = deeds::settle(books, observations, &mut findings);
    let money = books.money.as_ref().map(|ledger| (ledger, &settled.money));
    let sides: Vec<_> = [(&books.stock, &settled.stock)].into_iter().chain(money).collect();
    let mut chains: Vec<_> = sides
        .iter()
        .map(|(ledger, side)| chain::check(ledger, &side.windows, observations, &mut findings))
        .collect();
    let mut parts: Vec<across::Part<'_, '_>> = sides
        .iter()
        .zip(&mut chains)
        .map(|((ledger, side), chains)| (*ledger, &side.windows[..], &mut chains[..]))
        .collect();
    across::check(&mut parts, observations, &mut findings);
    for ((ledger, side), chains) in sides.iter().zip(&chains) {
        moments::check(ledger, chains, observations, side, &mut findings);
    }
    (findings.violations, findings.steps)
}
