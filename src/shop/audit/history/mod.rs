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
mod chain;
mod clerk;
mod deeds;
mod load;
mod moments;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::shop::{OrderId, UserId};

pub use load::load;
pub use report::{Rule, Violation};

use report::Findings;

/// One request as its client saw it. A client that asks twice with one key makes two of them, and
/// all attempts with a key (or to pay one order) are observed, or none: otherwise an order that an
/// unobserved attempt placed looks like one that a refused attempt did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Who asked.
    pub user: UserId,
    /// The idempotency key.
    pub key: String,
    /// The request's name (`X-Request-Id`), if the client knows it. It tells which of several
    /// attempts with one key did the work; without it, the bounds in time are wider.
    pub request: Option<Uuid>,
    /// What was asked for.
    pub asked: Asked,
    /// When it was sent, on [`crate::clock::monotonic_us`].
    pub invoked_us: u64,
    /// When its answer was there, on the same clock. For [`Outcome::Unknown`] it means nothing.
    pub completed_us: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// To place an order: skus and quantities. The same sku twice is summed.
    Place(Vec<(String, i64)>),
    /// To pay an order.
    Pay(OrderId),
}

/// What came of a request, as far as its client knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was placed, or paid.
    Done {
        /// The order.
        order: OrderId,
        /// What the answer says that it changed: one per line, or the one of the account.
        changes: Vec<Change>,
        /// Whether the answer says that it is an old one given again.
        replayed: bool,
    },
    /// There was not enough: sold out, or insufficient funds. Nothing may have been written.
    Short {
        /// Of what: a sku, or the user's id.
        key: String,
        /// How much was asked for.
        requested: i64,
        /// How much there was, by the answer.
        available: i64,
    },
    /// It was refused for any other reason. Nothing may have been written by it.
    Refused,
    /// No answer, or one that does not say. It was done once, or will be, or not at all.
    Unknown,
}

/// A change as an answer tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Of what: a sku, or the user's id.
    pub key: String,
    /// The value before.
    pub before: i64,
    /// What was added.
    pub delta: i64,
    /// The value after.
    pub after: i64,
}

/// The books, as they were at one moment after the history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Books {
    /// The stock of every sku that observations speak of.
    pub stock: Ledger,
    /// The balances of all whose payments are observed, if any are. Then all orders of these users
    /// must be there.
    pub money: Option<Ledger>,
    /// Every order that has a line of an item in `stock`, or whose buyer is in `money`.
    pub orders: Vec<Order>,
}

/// Values with a chain of entries each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// By key: a sku, or a user's id.
    pub values: BTreeMap<String, Value>,
    /// The entries of these keys, in any order.
    pub entries: Vec<Entry>,
}

/// A value before the first entry, and as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Before the first entry; 0 if the ledger is there from its beginning.
    pub opening: i64,
    /// On the shelf, or on the account.
    pub now: i64,
}

/// A row of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the ledger: unique, not an order (a statement may take its number before
    /// another one that commits first). Orders entries of the same version only.
    pub seq: i64,
    /// Of what: a sku, or a user's id.
    pub key: String,
    /// The value before.
    pub before: i64,
    /// What was added.
    pub delta: i64,
    /// The value after.
    pub after: i64,
    /// The row's version that `before` was read at: the order of a key's entries. The opening
    /// entry has version 0.
    pub version: i64,
    /// Under which fence, where the lock has one.
    pub fence: Option<i64>,
    /// For which order.
    pub order: Option<OrderId>,
    /// Why: `order`, `payment`, `opening` and `refund` mean something here, all others are alike.
    pub reason: String,
    /// By which request.
    pub request: Uuid,
}

/// An order as it is in the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// Whose.
    pub user: UserId,
    /// The key under which it was placed.
    pub token: String,
    /// `pending`, `paid`, `cancelled` or `refunded`.
    pub status: String,
    /// What it costs.
    pub total_cents: i64,
    /// Its lines, of items in the books' `stock` only.
    pub lines: Vec<(String, i64)>,
}

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
