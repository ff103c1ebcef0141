//! Input of the checker: requests as clients observed them, and the recorded state.

use std::collections::BTreeMap;
use std::fmt;

use holdfast_shop::{OrderId, UserId};
use uuid::Uuid;

/// One request as its client saw it. Two requests with one key are two observations. All attempts
/// with a key (or to pay one order) are observed, or none: otherwise an order that an unobserved
/// attempt placed looks like that of a rejected attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRequest {
    pub user: UserId,
    pub key: String,
    /// Id of the request (`X-Request-Id`): the attempt that did the work, among several.
    pub request: Option<Uuid>,
    pub operation: ObservedOperation,
    /// Time of sending, by [`holdfast_lock::clock::monotonic_us`].
    pub invoked_us: u64,
    /// Time of the response, by the same clock. Meaningless for [`ObservedOutcome::Unknown`].
    pub completed_us: u64,
    pub outcome: ObservedOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedOperation {
    /// Placing an order: skus and quantities. Quantities of the same sku are added.
    Place(Vec<(String, i64)>),
    Pay(OrderId),
}

/// Result of a request, as its client knows it. Keys are skus and ids of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedOutcome {
    /// The order was placed, or paid.
    Done {
        order: OrderId,
        /// One per line, or that of the account.
        changes: Vec<ObservedChange>,
        replayed: bool,
    },
    /// Rejected as sold out, or for insufficient funds. Nothing may have been written.
    Insufficient { key: String, requested: i64, available: i64 },
    /// Rejected for another reason. Nothing may have been written by this request.
    Rejected,
    /// No response, or an inconclusive one. The request was executed once, will be, or never is.
    Unknown,
}

/// A change as a response states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedChange {
    pub key: String,
    pub before: i64,
    pub delta: i64,
    pub after: i64,
}

/// Ledgers and orders at one moment after the history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedState {
    /// The stock of every observed sku, and the balances of observed payers.
    pub values: BTreeMap<String, i64>,
    /// All entries of these values, in any order.
    pub entries: Vec<RecordedEntry>,
    /// Every order that has a line of an item, or whose buyer has an account, in `values`.
    pub orders: Vec<RecordedOrder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEntry {
    /// Unique in its ledger, but not an order: a statement may take its number before another one
    /// that commits first. Orders entries of the same version only.
    pub seq: i64,
    pub key: String,
    pub before: i64,
    pub delta: i64,
    pub after: i64,
    /// Row version at which `before` was read: the order of entries.
    pub version: i64,
    /// Fence of the lock, if it has one.
    pub fence: Option<i64>,
    pub order: Option<OrderId>,
    /// `order`, `payment`, `opening` and `refund` are checked; all others are equivalent.
    pub reason: String,
    pub request: Uuid,
}

impl fmt::Display for RecordedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, key, before, delta, after, version, reason, .. } = self;
        write!(f, "{key} entry {seq} ({before} {delta:+} → {after}, version {version}, {reason})")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOrder {
    pub id: OrderId,
    pub user: UserId,
    /// The idempotency key with which it was placed.
    pub token: String,
    /// `pending`, `paid`, `cancelled` or `refunded`.
    pub status: String,
    pub total_cents: i64,
    /// Its lines, of observed items only.
    pub lines: Vec<(String, i64)>,
}
