//! Input of the checker: requests as clients observed them, and the recorded state.

use std::collections::BTreeMap;

use uuid::Uuid;

use holdfast::shop::{OrderId, UserId};

/// One request as its client saw it. Two requests with one key are two observations. All attempts
/// with a key (or to pay one order) are observed, or none: otherwise an order that an unobserved
/// attempt placed looks like that of a rejected attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRequest {
    pub user: UserId,
    pub key: String,
    /// Id of the request (`X-Request-Id`), if the client knows it. Identifies the attempt that did
    /// the work among several with one key; without it, the bounds in time are wider.
    pub request: Option<Uuid>,
    pub operation: ObservedOperation,
    /// Time of sending, by [`holdfast_lock::clock::monotonic_us`].
    pub invoked_us: u64,
    /// Time of the response, by the same clock. Meaningless for [`ObservedOutcome::Unknown`].
    pub completed_us: u64,
    pub outcome: ObservedOutcome,
}

/// The operation that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedOperation {
    /// Placing an order: skus and quantities. Quantities of the same sku are added.
    Place(Vec<(String, i64)>),
    Pay(OrderId),
}

/// Result of a request, as its client knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedOutcome {
    /// The order was placed, or paid.
    Done {
        order: OrderId,
        /// Changes in the response: one per line, or that of the account.
        changes: Vec<ObservedChange>,
        /// True if the response is a replay.
        replayed: bool,
    },
    /// Rejected as sold out, or for insufficient funds. Nothing may have been written.
    Insufficient {
        /// A sku, or the user's id.
        key: String,
        requested: i64,
        /// The amount available, by the response.
        available: i64,
    },
    /// Rejected for another reason. Nothing may have been written by this request.
    Rejected,
    /// No response, or an inconclusive one. The request was executed once, will be, or never is.
    Unknown,
}

/// A change as a response states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedChange {
    /// A sku, or the user's id.
    pub key: String,
    pub before: i64,
    pub delta: i64,
    pub after: i64,
}

/// Ledgers and orders at one moment after the history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedState {
    /// The stock of every observed sku.
    pub stock: RecordedLedger,
    /// Balances of observed payers, if any; then `orders` must contain all orders of these users.
    pub money: Option<RecordedLedger>,
    /// Every order that has a line of an item in `stock`, or whose buyer is in `money`.
    pub orders: Vec<RecordedOrder>,
}

/// Values with a chain of entries each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedLedger {
    /// By key: a sku, or a user's id.
    pub values: BTreeMap<String, RecordedValue>,
    /// The entries of these keys, in any order.
    pub entries: Vec<RecordedEntry>,
}

/// A value before the first entry, and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedValue {
    /// Value before the first entry; 0 if the ledger is complete.
    pub opening: i64,
    /// Current stock or balance.
    pub now: i64,
}

/// A ledger entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEntry {
    /// Number in the ledger: unique, but not an order (a statement may take its number before
    /// another one that commits first). Orders entries of the same version only.
    pub seq: i64,
    /// A sku, or a user's id.
    pub key: String,
    pub before: i64,
    pub delta: i64,
    pub after: i64,
    /// Row version at which `before` was read: the order of entries. The opening entry has 0.
    pub version: i64,
    /// Fence of the lock, if it has one.
    pub fence: Option<i64>,
    pub order: Option<OrderId>,
    /// Reason: `order`, `payment`, `opening` and `refund` are checked; all others are equivalent.
    pub reason: String,
    pub request: Uuid,
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOrder {
    pub id: OrderId,
    pub user: UserId,
    /// The idempotency key with which it was placed.
    pub token: String,
    /// `pending`, `paid`, `cancelled` or `refunded`.
    pub status: String,
    pub total_cents: i64,
    /// Its lines, of items in [`RecordedState::stock`] only.
    pub lines: Vec<(String, i64)>,
}
