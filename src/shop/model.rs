//! What the API and the pages show: items, orders, ledger entries. Plain data.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{OrderId, Sku};

/// An item as the shop shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Item {
    /// Its name in orders.
    pub sku: Sku,
    /// Its name for people.
    pub name: String,
    /// Its price, in cents.
    pub price_cents: i64,
    /// Units in stock.
    pub stock: i64,
    /// The most units one customer may have, in orders that are pending or paid; absent when there
    /// is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<i64>,
}

/// A line of an order request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedLine {
    /// The item.
    pub sku: Sku,
    /// Units: 1 to 1,000.
    #[schema(minimum = 1, maximum = 1000)]
    pub quantity: i64,
}

/// A value before a change, the change, and the value after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Before.
    pub before: i64,
    /// What was added; negative when something was taken.
    pub delta: i64,
    /// After.
    pub after: i64,
}

/// One line of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// The item.
    pub sku: Sku,
    /// Units.
    pub quantity: i64,
    /// The price of one unit when it was ordered.
    pub unit_price_cents: i64,
    /// What ordering it did to the stock.
    pub stock: Change,
}

/// The status of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderStatus {
    /// Placed, its units taken, not paid.
    Pending,
    /// Paid.
    Paid,
    /// Cancelled by its customer, or expired; its units were returned.
    Cancelled,
    /// Refunded; units and money were returned.
    Refunded,
}

impl OrderStatus {
    /// Its name in the database and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            OrderStatus::Pending => "pending",
            OrderStatus::Paid => "paid",
            OrderStatus::Cancelled => "cancelled",
            OrderStatus::Refunded => "refunded",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Pending, Self::Paid, Self::Cancelled, Self::Refunded]
            .into_iter()
            .find(|status| status.name() == name)
    }
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// `pending`, `paid`, `cancelled` or `refunded`. An order that was not paid in time is
    /// `cancelled` too, with `expired`.
    #[schema(example = "pending")]
    pub status: String,
    /// Its price, in cents.
    pub total_cents: i64,
    /// Its lines, by sku.
    pub lines: Vec<Line>,
    /// The moment until which it can be paid.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// When it was placed.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was paid, if it was.
    #[serde(
        with = "time::serde::rfc3339::option",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub paid_at: Option<OffsetDateTime>,
    /// True when it was cancelled because it was not paid in time, and not by its customer; left
    /// out otherwise. Its entries in the stock ledger have the reason `expiry` then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

impl Order {
    /// Its items and quantities, sorted by sku.
    pub fn units(&self) -> Vec<(Sku, i64)> {
        self.lines.iter().map(|line| (line.sku.clone(), line.quantity)).collect()
    }
}

/// An order that was paid, and what that did to the balance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Paid {
    /// The order as it is now.
    pub order: Order,
    /// The account.
    pub balance: Change,
}

/// An order that was cancelled or refunded, and what that returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Returned {
    /// The order as it is now.
    pub order: Order,
    /// The units returned to stock, by sku.
    pub stock: BTreeMap<String, Change>,
    /// The money returned to the account, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub balance: Option<Change>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    pub orders: BTreeSet<OrderId>,
}

/// One change of one value, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Its number: a cursor for paging, which grows in the order of the ledger.
    pub seq: i64,
    /// The value before.
    pub before: i64,
    /// What was added.
    pub delta: i64,
    /// The value after.
    pub after: i64,
    /// The row's version that `before` was read at. Two entries with the same one are a fork.
    pub version: i64,
    /// Why.
    pub reason: String,
    /// The order it belongs to, if any.
    pub order_id: Option<OrderId>,
    /// The fence of the lock it was written under, where the lock has one.
    pub fence: Option<i64>,
    /// The request that wrote it.
    pub request_id: Uuid,
    /// When it was written.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}
