//! The state on which commands decide: what was read from the database, and what earlier commands
//! of the batch left of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::changes::{BalanceChange, LedgerChange, StatusTransition, StockChange, UnitSnapshot};
use crate::failure::Rejection;
use crate::model::{Item, ItemNames, LedgerEntry, OrderStatus};
use crate::{OrderId, Sku, UserId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopState {
    /// Time of the read, by Postgres's clock.
    pub now: OffsetDateTime,
    /// Items; unknown ones are absent.
    pub items: BTreeMap<Sku, StockSnapshot>,
    /// Descriptions of the items, if a command reads them.
    pub descriptions: BTreeMap<Sku, String>,
    pub accounts: BTreeMap<UserId, BalanceSnapshot>,
    /// Orders; unknown ones are absent, and locked ones if they are skipped.
    pub orders: HashMap<OrderId, OrderSnapshot>,
    /// Units of limited items in each customer's pending and paid orders. Without an entry, the
    /// limit is not checked yet: the engine counts once the row is locked, and decides again.
    pub purchased: HashMap<(Sku, UserId), i64>,
    pub next_entry: Option<NextLedgerEntry>,
    /// The units that are locked for the commands: of items in units, and of no others.
    pub units: BTreeMap<Sku, Vec<UnitSnapshot>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StockSnapshot {
    /// Shared by all states and orders of a batch.
    pub names: Arc<ItemNames>,
    pub price_cents: i64,
    pub stock: i64,
    pub limit_per_user: Option<i64>,
    /// True if it takes no new orders.
    pub hidden: bool,
    /// Version at which `stock` was read; each change raises it.
    pub version: i64,
    /// The highest fence that has written the row.
    pub fence: i64,
    /// True if the row was updated before this decision.
    pub is_updated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceSnapshot {
    pub balance_cents: i64,
    pub version: i64,
    /// The highest fence that has written the row.
    pub fence: i64,
    /// True if the row was updated before this decision.
    pub is_updated: bool,
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

/// The parts of a ledger entry that a command does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLedgerEntry {
    pub seq: i64,
    pub fence: Option<i64>,
    pub request_id: Uuid,
}

impl NextLedgerEntry {
    pub(super) fn number<K>(self, change: &mut LedgerChange<K>, at: OffsetDateTime) -> LedgerEntry {
        change.seq = Some(self.seq);
        LedgerEntry {
            seq: self.seq,
            before: change.before,
            delta: change.delta,
            after: change.after(),
            version: change.version,
            reason: change.reason.to_string(),
            order_id: change.order,
            fence: self.fence,
            request_id: self.request_id,
            at,
        }
    }
}

impl ShopState {
    pub fn at(now: OffsetDateTime) -> Self {
        Self {
            now,
            items: BTreeMap::new(),
            descriptions: BTreeMap::new(),
            accounts: BTreeMap::new(),
            orders: HashMap::new(),
            purchased: HashMap::new(),
            next_entry: None,
            units: BTreeMap::new(),
        }
    }

    pub(super) fn item(&self, sku: &Sku) -> Result<&StockSnapshot, Rejection> {
        self.items.get(sku).ok_or_else(|| Rejection::no_item(sku))
    }

    /// Returns the item with all its settings, for a command that reads its description.
    pub(super) fn whole_item(&self, sku: &Sku) -> Result<Item, Rejection> {
        let row = self.item(sku)?;
        let description = self.descriptions.get(sku).ok_or_else(|| Rejection::no_item(sku))?;
        let ItemNames { name, name_zh } = ItemNames::clone(&row.names);
        Ok(Item {
            sku: sku.clone(),
            name,
            name_zh,
            price_cents: row.price_cents,
            stock: row.stock,
            limit_per_user: row.limit_per_user,
            description: description.clone(),
            hidden: row.hidden,
        })
    }

    /// Sets an item's settings; not its stock.
    pub(super) fn edit_item(&mut self, item: &Item) -> Result<(), Rejection> {
        let sku = &item.sku;
        let row = self.items.get_mut(sku).ok_or_else(|| Rejection::no_item(sku))?;
        row.names = Arc::new(item.names());
        row.price_cents = item.price_cents;
        row.limit_per_user = item.limit_per_user;
        row.hidden = item.hidden;
        // Orders that have read the old settings conflict, and read again.
        row.version += 1;

        self.descriptions.insert(sku.clone(), item.description.clone());
        Ok(())
    }

    pub(super) fn balance_cents(&self, user: UserId) -> Result<i64, Rejection> {
        Ok(self.accounts.get(&user).ok_or_else(Rejection::no_account)?.balance_cents)
    }

    /// Returns the order, or rejects it if its status is not `status`.
    pub(super) fn order_in(
        &self,
        status: OrderStatus,
        order: OrderId,
        action: &'static str,
    ) -> Result<OrderSnapshot, Rejection> {
        let Some(found) = self.orders.get(&order) else {
            return Err(Rejection::no_order(order));
        };
        if found.status != status {
            return Err(Rejection::OrderState { status: found.status, action });
        }
        Ok(*found)
    }

    pub(super) fn change_order(
        &mut self,
        order: OrderId,
        from: OrderStatus,
        after: OrderSnapshot,
    ) -> StatusTransition {
        self.orders.insert(order, after);
        StatusTransition { order, from, to: after.status, paid_at: after.paid_at }
    }

    /// Adds `delta`, which the caller has checked, to an item's stock.
    pub(super) fn change_stock(
        &mut self,
        sku: &Sku,
        delta: i64,
        reason: impl Into<Cow<'static, str>>,
        order: Option<OrderId>,
    ) -> Result<StockChange, Rejection> {
        let item = self.items.get_mut(sku).ok_or_else(|| Rejection::no_item(sku))?;
        let units = self.units.get_mut(sku).map(|locked| {
            let holder = if delta < 0 { None } else { order };
            take_units(locked, holder, delta.unsigned_abs())
        });
        let change = StockChange {
            key: sku.clone(),
            before: item.stock,
            delta,
            version: item.version,
            reason: reason.into(),
            order,
            seq: None,
            units,
        };

        item.stock += delta;
        // The row of an item in units does not change.
        if change.units.is_none() {
            item.version += 1;
        }
        Ok(change)
    }

    /// Adds `delta`, which the caller has checked, to a balance.
    pub(super) fn change_balance(
        &mut self,
        user: UserId,
        delta: i64,
        reason: &'static str,
        order: Option<OrderId>,
    ) -> Result<BalanceChange, Rejection> {
        let account = self.accounts.get_mut(&user).ok_or_else(Rejection::no_account)?;
        let change = BalanceChange {
            key: user,
            before: account.balance_cents,
            delta,
            version: account.version,
            reason: reason.into(),
            order,
            seq: None,
            units: None,
        };

        account.balance_cents += delta;
        account.version += 1;
        Ok(change)
    }

    /// Returns units to stock. Rejects an unknown item before any change.
    pub(super) fn return_units(
        &mut self,
        units: &[(Sku, i64)],
        reason: &'static str,
        order: OrderId,
    ) -> Result<Vec<StockChange>, Rejection> {
        for (sku, _) in units {
            self.item(sku)?;
        }

        units
            .iter()
            .map(|(sku, quantity)| self.change_stock(sku, *quantity, reason, Some(order)))
            .collect()
    }
}

/// Takes the first `count` units that `holder` has.
fn take_units(
    locked: &mut Vec<UnitSnapshot>,
    holder: Option<OrderId>,
    count: u64,
) -> Vec<UnitSnapshot> {
    let mut left = count;
    let taken = locked.extract_if(.., |unit| {
        let takes = left > 0 && unit.order == holder;
        left -= u64::from(takes);
        takes
    });
    taken.collect()
}
