//! What a command will write: a value, made by [`super::Command::decide`] and written by the store.

use time::OffsetDateTime;

use crate::shop::failure::{Error, StoredResponse};
use crate::shop::model::{Change, Entry, Expired, Item, Order, OrderStatus, Paid, Returned};
use crate::shop::{OrderId, Sku, UserId};

/// All that one command writes, and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// A new order with its lines.
    pub order: Option<NewOrder>,
    /// Changes of orders' status.
    pub transitions: Vec<Transition>,
    /// Changes of stock, in the order of the ledger.
    pub stock: Vec<StockChange>,
    /// The change of a balance.
    pub balance: Option<BalanceChange>,
    /// The new limit per customer of an item.
    pub limit: Option<(Sku, Option<i64>)>,
    /// Money that comes into the shop, in cents.
    pub top_up_cents: Option<i64>,
    /// What the client receives.
    pub response: Response,
}

impl Changes {
    /// Nothing but a response.
    pub fn none(response: Response) -> Self {
        Self {
            order: None,
            transitions: Vec::new(),
            stock: Vec::new(),
            balance: None,
            limit: None,
            top_up_cents: None,
            response,
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.order.is_none()
            && self.transitions.is_empty()
            && self.stock.is_empty()
            && self.balance.is_none()
            && self.limit.is_none()
    }
}

/// An order to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    /// Its id.
    pub id: OrderId,
    /// Its customer.
    pub user: UserId,
    /// The idempotency key it is placed with.
    pub token: String,
    /// Its price.
    pub total_cents: i64,
    /// When it is placed.
    pub created_at: OffsetDateTime,
    /// The moment until which it can be paid.
    pub expires_at: OffsetDateTime,
    /// Its lines, in the order of the stock changes.
    pub lines: Vec<NewLine>,
}

/// A line of an order to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLine {
    /// The item.
    pub sku: Sku,
    /// Units.
    pub quantity: i64,
    /// Price of one unit.
    pub unit_price_cents: i64,
    /// The limit under which it is sold.
    pub limit_per_user: Option<i64>,
}

/// A change of an order's status, by compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The order.
    pub order: OrderId,
    /// The status it must have.
    pub from: OrderStatus,
    /// The status it gets.
    pub to: OrderStatus,
    /// When it is paid, if it is now.
    pub paid_at: Option<OffsetDateTime>,
}

/// A change of an item's stock, and its ledger entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockChange {
    /// The item.
    pub sku: Sku,
    /// Units before.
    pub before: i64,
    /// Units added.
    pub delta: i64,
    /// The version that `before` stands for.
    pub version: i64,
    /// Why.
    pub reason: String,
    /// The order it belongs to.
    pub order: Option<OrderId>,
    /// The entry's number, where it is in the response.
    pub seq: Option<i64>,
}

/// A change of a balance, and its ledger entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalanceChange {
    /// The account.
    pub user: UserId,
    /// Cents before.
    pub before: i64,
    /// Cents added.
    pub delta: i64,
    /// The version that `before` stands for.
    pub version: i64,
    /// Why.
    pub reason: &'static str,
    /// The order it belongs to.
    pub order: Option<OrderId>,
    /// The entry's number, where it is in the response.
    pub seq: Option<i64>,
}

impl From<&StockChange> for Change {
    fn from(change: &StockChange) -> Self {
        let &StockChange { before, delta, .. } = change;
        Self { before, delta, after: before + delta }
    }
}

impl From<&BalanceChange> for Change {
    fn from(change: &BalanceChange) -> Self {
        let &BalanceChange { before, delta, .. } = change;
        Self { before, delta, after: before + delta }
    }
}

/// What a client receives for an executed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The order that was placed.
    Placed(Order),
    /// The order that was paid.
    Paid(Paid),
    /// The order that was cancelled or refunded.
    Returned(Returned),
    /// The ledger entry of a restock.
    Restocked(Entry),
    /// The ledger entry of a top-up.
    ToppedUp(Entry),
    /// The item whose limit was set.
    LimitSet(Item),
    /// The orders that expired.
    Expired(Expired),
}

impl Response {
    /// As it is stored and sent.
    ///
    /// # Errors
    /// [`Error::Bug`] when it can't be written as JSON.
    pub fn stored(&self) -> Result<StoredResponse, Error> {
        match self {
            Response::Placed(order) => StoredResponse::json(201, order),
            Response::Paid(paid) => StoredResponse::json(200, paid),
            Response::Returned(returned) => StoredResponse::json(200, returned),
            Response::Restocked(entry) => StoredResponse::json(200, entry),
            Response::ToppedUp(entry) => StoredResponse::json(201, entry),
            Response::LimitSet(item) => StoredResponse::json(200, item),
            Response::Expired(expired) => StoredResponse::json(200, expired),
        }
    }
}
