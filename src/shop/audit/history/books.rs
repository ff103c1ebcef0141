//! What is checked: what clients observed, and the books.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::shop::{OrderId, UserId};

/// One request as its client saw it. A client that asks twice with one key makes two of them, and
/// all attempts with a key (or to pay one order) are observed, or none: otherwise an order that an
/// unobserved attempt placed looks like one that a refused attempt did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub user: UserId,
    pub key: String,
    /// The request's name (`X-Request-Id`), if the client knows it. It tells which of several
    /// attempts with one key did the work; without it, the bounds in time are wider.
    pub request: Option<Uuid>,
    pub asked: Asked,
    /// When it was sent, on [`crate::clock::monotonic_us`].
    pub invoked_us: u64,
    /// When its answer was there, on the same clock. For [`Outcome::Unknown`] it means nothing.
    pub completed_us: u64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// To place an order: skus and quantities. The same sku twice is summed.
    Place(Vec<(String, i64)>),
    Pay(OrderId),
}

/// What came of a request, as far as its client knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was placed, or paid.
    Done {
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
    pub before: i64,
    pub delta: i64,
    pub after: i64,
}

/// The books, as they were at one moment after the history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Books {
    /// The stock of every sku that observations speak of.
    pub stock: Ledger,
    /// The balances of observed payers, if any; then all orders of these users must be there.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the ledger: unique, not an order (a statement may take its number before
    /// another one that commits first). Orders entries of the same version only.
    pub seq: i64,
    /// Of what: a sku, or a user's id.
    pub key: String,
    pub before: i64,
    pub delta: i64,
    pub after: i64,
    /// The row's version that `before` was read at: the order of entries. The opening one has 0.
    pub version: i64,
    /// Under which fence, where the lock has one.
    pub fence: Option<i64>,
    pub order: Option<OrderId>,
    /// Why: `order`, `payment`, `opening` and `refund` mean something here, all others are alike.
    pub reason: String,
    pub request: Uuid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: OrderId,
    pub user: UserId,
    /// The key under which it was placed.
    pub token: String,
    /// `pending`, `paid`, `cancelled` or `refunded`.
    pub status: String,
    pub total_cents: i64,
    /// Its lines, of items in the books' `stock` only.
    pub lines: Vec<(String, i64)>,
}
