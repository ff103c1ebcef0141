//! The state of a game as JSON: the same of the shop's server and, on the site, of
//! `static/scheduler-postgres.js`. The page makes the sentences.

use serde::Serialize;

use super::rules::Level;
use super::stages::NextAction;
use holdfast_shop::audit::ItemSummary;
use holdfast_shop::model::LedgerEntry;
use holdfast_shop::probe::Point;

#[derive(Debug, Clone, Serialize)]
pub struct GameState {
    /// `None` in a free game.
    pub level: Option<Level>,
    pub strategy: &'static str,
    pub orders: Vec<OrderState>,
    pub steps: Vec<StepState>,
    /// The newest first.
    pub entries: Vec<EntryState>,
    pub audit: ItemSummary,
    /// Number of steps in which the goal was reached.
    pub reached_at: Option<usize>,
    pub stars: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrderState {
    pub name: char,
    /// The point at which it is paused.
    pub at: Option<Point>,
    /// The points that it has reached; of a write only those since the last read, because an order
    /// whose write was rejected reads again.
    pub reached: Vec<Point>,
    /// Value that it has read last.
    pub read: Option<i64>,
    pub fence: Option<i64>,
    pub lock: Option<LockBelief>,
    /// Its action if it takes the next step.
    pub next: Option<NextAction>,
    pub waits_for: Option<Waits>,
    /// Its last write that Postgres rejected.
    pub rejection: Option<RejectedWrite>,
    pub result: Option<OrderResult>,
}

/// The truth of an order's belief that it has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockBelief {
    Held,
    /// Its lease was ended. It does not learn of it.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waits {
    Lock,
    /// For a lock whose lease was ended: its server still counts the last holder.
    EndedLease,
    /// For a row that another order has locked.
    Row,
}

/// A write that Postgres rejected, and the row as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RejectedWrite {
    pub version: i64,
    pub fence: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum OrderResult {
    Sold {
        before: i64,
        after: i64,
    },
    SoldOut,
    /// It waited for the lock in vain.
    Timeout,
    /// It lost its lock, and a later holder wrote.
    Stale,
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepState {
    /// Order that was resumed; `X` if the lease was ended in Redis.
    pub who: char,
    pub did: Option<NextAction>,
    /// Value that it has read, if it is at that point now.
    pub saw: Option<i64>,
    pub waits_for: Option<Waits>,
    pub rejection: Option<RejectedWrite>,
    pub result: Option<OrderResult>,
}

impl StepState {
    /// Returns the step that ends the lease of the lock.
    pub(super) fn expiry() -> Self {
        let (who, did) = ('X', None);
        Self { who, did, saw: None, waits_for: None, rejection: None, result: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryState {
    pub seq: i64,
    pub before: i64,
    pub delta: i64,
    pub after: i64,
    /// The version of the row that was read.
    pub version: i64,
    pub fence: Option<i64>,
    pub reason: String,
}

impl From<LedgerEntry> for EntryState {
    fn from(entry: LedgerEntry) -> Self {
        let LedgerEntry { seq, before, delta, after, version, fence, reason, .. } = entry;
        Self { seq, before, delta, after, version, fence, reason }
    }
}
