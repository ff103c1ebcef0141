//! The state on which commands decide: what was read from the database, and what earlier commands
//! of the batch left of it.

use std::collections::{BTreeMap, HashMap};

use time::OffsetDateTime;
use uuid::Uuid;

use super::changes::{BalanceChange, StockChange};
use crate::shop::model::{LedgerEntry, OrderStatus};
use crate::shop::{OrderId, Sku, UserId};

/// The rows that were read for one command or one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopState {
    /// Time of the read, by Postgres's clock.
    pub now: OffsetDateTime,
    /// Items; unknown ones are absent.
    pub items: BTreeMap<Sku, StockSnapshot>,
    pub accounts: BTreeMap<UserId, BalanceSnapshot>,
    /// Orders; unknown ones are absent, and locked ones if they are skipped.
    pub orders: HashMap<OrderId, OrderSnapshot>,
    /// Units of limited items in each customer's pending and paid orders. Without an entry, the
    /// limit is not checked yet: the engine counts once the row is locked, and decides again.
    pub purchased: HashMap<(Sku, UserId), i64>,
    /// The data of a ledger entry that the response contains.
    pub next_entry: Option<NextLedgerEntry>,
}

/// An item's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockSnapshot {
    pub price_cents: i64,
    pub stock: i64,
    pub limit_per_user: Option<i64>,
    /// Version at which `stock` was read; each change raises it.
    pub version: i64,
    /// The highest fence that has written the row.
    pub fence: i64,
    /// True if a conditional update has changed the row already.
    pub reserved: bool,
}

/// An account's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceSnapshot {
    pub balance_cents: i64,
    /// Version at which it was read; each change raises it.
    pub version: i64,
    /// The highest fence that has written the row.
    pub fence: i64,
    /// True if a conditional update has changed the row already.
    pub reserved: bool,
}

/// The mutable part of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderSnapshot {
    pub status: OrderStatus,
    pub expires_at: OffsetDateTime,
    pub paid_at: Option<OffsetDateTime>,
    /// True if it was cancelled because it was not paid in time.
    pub expired: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerKind {
    Stock,
    Balance,
}

/// The parts of a ledger entry that a command does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLedgerEntry {
    pub seq: i64,
    pub fence: Option<i64>,
    pub request_id: Uuid,
}

impl ShopState {
    pub fn at(now: OffsetDateTime) -> Self {
        Self {
            now,
            items: BTreeMap::new(),
            accounts: BTreeMap::new(),
            orders: HashMap::new(),
            purchased: HashMap::new(),
            next_entry: None,
        }
    }

    /// Adds `delta`, which the caller has checked, to an item's stock. Returns `None` for an
    /// unknown item.
    pub(super) fn change_stock(
        &mut self,
        sku: &Sku,
        delta: i64,
        reason: &str,
        order: Option<OrderId>,
    ) -> Option<StockChange> {
        let item = self.items.get_mut(sku)?;
        let (before, version) = (item.stock, item.version);
        item.stock += delta;
        item.version += 1;
        let reason = reason.to_owned();
        Some(StockChange { sku: sku.clone(), before, delta, version, reason, order, seq: None })
    }

    pub(super) fn change_balance(
        &mut self,
        user: UserId,
        delta: i64,
        reason: &'static str,
        order: Option<OrderId>,
    ) -> Option<BalanceChange> {
        let account = self.accounts.get_mut(&user)?;
        let (before, version) = (account.balance_cents, account.version);
        account.balance_cents += delta;
        account.version += 1;
        Some(BalanceChange { user, before, delta, version, reason, order, seq: None })
    }

    pub(super) fn entry(
        &self,
        next: NextLedgerEntry,
        (before, delta, version): (i64, i64, i64),
        reason: &str,
    ) -> LedgerEntry {
        LedgerEntry {
            seq: next.seq,
            before,
            delta,
            after: before + delta,
            version,
            reason: reason.to_owned(),
            order_id: None,
            fence: next.fence,
            request_id: next.request_id,
            at: self.now,
        }
    }
}
