//! The exact checker: answers that clients got, held against the ledger.
//!
//! The other checks of the audit ask whether the books agree with themselves. This one asks whether
//! they agree with what was *said* to people, and when: it reads a history of requests as clients
//! saw them ([`Observation`]) and the books afterwards ([`Books`]), and says what can't be. The
//! version order is in the ledger (`version`, then `seq`), so nothing is searched: O(n log n) in
//! entries, orders and observations together, and exact all the same.
//!
//! | | holds | where |
//! |---|---|---|
//! | I1 | no value is ever below zero | `chain` |
//! | I2 | opening + Σ delta = the value now | `chain` |
//! | I3 | each entry begins where the one before ended; versions differ (else: a fork) | `chain` |
//! | I4 | what was acknowledged has exactly one entry per line, with its values | `clerk` |
//! | I5 | what was refused has none | `clerk` |
//! | I6 | what is unknown has none or one; a token never does its work twice | `clerk` |
//! | I7 | if A was answered before B was asked, A's entry is before B's | `chain`, `across` |
//! | I8 | fences never fall | `chain` |
//! | I9 | a *sold out* was true at some moment of its request | `moments` |
//! | I10 | debits = credits; entries ↔ lines and payment ↔ status are 1:1 | `clerk`, `deeds` |
//!
//! # Guarantee
//! Per value (an item's stock, an account's balance): if nothing is found, the answers are
//! linearizable. There is one order of all requests, which keeps their real-time order, in which
//! every order took its units from what was there, every acknowledged one got its before and after,
//! and every *sold out* saw the stock that it reported. The order is the ledger's, with each *sold
//! out* put in between; that they fit in together, and not just one by one, is part of I9. Real
//! time is judged with the machine's monotonic clock; two moments in the same microsecond count as
//! concurrent. An outcome that is unknown may take effect at any time after it was asked for.
//!
//! Across values: all writes (orders, payments, what gives back) have one order that agrees with
//! every chain and with real time. With the *sold out*s left out, that is strict serializability.
//!
//! It is stronger than linearizability of the answers alone: the ledger says in which order things
//! happened, and answers that some *other* order could explain are still violations.
//! `tests/agreement.rs` (beside this file) holds both directions, for one value, against a
//! permutation search that knows no ledger: what this checker accepts is linearizable, and answers
//! are linearizable exactly if there is a ledger with which this checker accepts them.
//!
//! # What is not proven
//! - That the *sold out*s of several values fit together. Each value's do, within the bounds that
//!   all chains leave.
//! - When something happened that nobody observed (a restock, an order from elsewhere, a cancel):
//!   it is bounded by its neighbours only. Where it has bounds, they are kept to.
//! - A change that nobody observed and that is missing from ledger and value alike.
//! - That a refusal for other reasons (a busy lock, an overload) was necessary.

mod across;
mod answer;
mod books;
mod chain;
mod clerk;
mod deeds;
mod load;
mod moments;
mod report;
#[cfg(test)]
mod tests;

pub use books::{Asked, Books, Change, Entry, Ledger, Observation, Order, Outcome, Value};
pub use load::load;
pub use report::{Rule, Violation};

use report::Findings;

/// What can't be, in the order of the rules' modules; nothing when the history is sound.
#[must_use]
pub fn check(books: &Books, observations: &[Observation]) -> Vec<Violation> {
    counted(books, observations).violations
}

/// [`check`], and how many steps it took: entries, orders and observations looked at, lookups, and
/// comparisons of sorts and searches.
fn counted(books: &Books, observations: &[Observation]) -> Findings {
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
    findings
}
