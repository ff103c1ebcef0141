//! The changes of a command: a value that [`super::Command::decide`] returns and the store writes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use time::OffsetDateTime;

use crate::failure::{Error, StoredResponse};
use crate::model::{
    AdminEntry, Item, LedgerEntry, Order, OrderStatus, PaidOrder, ReturnedOrder, ValueChange,
};
use crate::{OrderId, Sku, UserId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    pub order: Option<NewOrder>,
    pub transitions: Vec<StatusTransition>,
    /// Changes of stock, in the order of the ledger.
    pub stock: Vec<StockChange>,
    pub balance: Option<BalanceChange>,
    /// The item with its new settings, which is the response.
    pub edit: Option<Item>,
    /// The entry of an admin's command in the admin log.
    pub entry: Option<AdminEntry>,
    pub top_up_cents: Option<i64>,
    pub response: CommandResponse,
}

impl Changes {
    pub fn none(response: CommandResponse) -> Self {
        Self {
            order: None,
            transitions: Vec::new(),
            stock: Vec::new(),
            balance: None,
            edit: None,
            entry: None,
            top_up_cents: None,
            response,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_none()
            && self.transitions.is_empty()
            && self.stock.is_empty()
            && self.balance.is_none()
            && self.edit.is_none()
    }

    /// Serializes the response as it is stored and sent; [`Error::Bug`] if that fails.
    pub fn stored_response(&self) -> Result<StoredResponse, Error> {
        match &self.response {
            CommandResponse::Placed => {
                StoredResponse::json(201, &self.order.as_ref().map(|new| &new.order))
            }
            CommandResponse::Paid(paid) => StoredResponse::json(200, paid),
            CommandResponse::Returned(returned) => StoredResponse::json(200, returned),
            CommandResponse::Restocked(entry) => StoredResponse::json(200, entry),
            CommandResponse::ToppedUp(entry) => StoredResponse::json(201, entry),
            CommandResponse::Edited => StoredResponse::json(200, &self.edit),
            CommandResponse::Expired(expired) => StoredResponse::json(200, expired),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    pub user: UserId,
    /// The response. Its lines are in the order of the stock changes.
    pub order: Order,
    /// The limit under which each line is sold.
    pub limits: Vec<Option<i64>>,
}

/// A change of an order's status, by compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusTransition {
    pub order: OrderId,
    pub from: OrderStatus,
    pub to: OrderStatus,
    pub paid_at: Option<OffsetDateTime>,
}

pub type StockChange = LedgerChange<Sku>;
pub type BalanceChange = LedgerChange<UserId>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerChange<K> {
    pub key: K,
    pub before: i64,
    pub delta: i64,
    pub version: i64,
    pub reason: Cow<'static, str>,
    pub order: Option<OrderId>,
    pub seq: Option<i64>,
    /// Of an item in units: the units that change, as they were read, each with an entry of its own
    /// instead of this one.
    pub units: Option<Vec<UnitSnapshot>>,
}

impl<K> LedgerChange<K> {
    pub fn after(&self) -> i64 {
        self.before + self.delta
    }
}

impl<K> From<&LedgerChange<K>> for ValueChange {
    fn from(change: &LedgerChange<K>) -> Self {
        Self { before: change.before, delta: change.delta, after: change.after() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandResponse {
    /// [`Changes::order`].
    Placed,
    Paid(PaidOrder),
    Returned(ReturnedOrder),
    Restocked(LedgerEntry),
    ToppedUp(LedgerEntry),
    /// [`Changes::edit`].
    Edited,
    Expired(BTreeSet<OrderId>),
}

/// One unit of an item in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSnapshot {
    pub unit: i64,
    /// Version at which `order` was read; each change replaces it.
    pub version: i64,
    /// The order that has it; `None` if it is free.
    pub order: Option<OrderId>,
}
