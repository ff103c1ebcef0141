//! Plain data of the API and the pages: items, orders, ledger entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{OrderId, Sku};
use holdfast_base::messages::Language;

/// The names of an item, in every language of the pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemNames {
    pub name: String,
    /// `None` if Chinese pages show `name`.
    pub name_zh: Option<String>,
}

impl ItemNames {
    pub fn in_language(&self, language: Language) -> &str {
        match (language, &self.name_zh) {
            (Language::Chinese, Some(name)) => name,
            _ => &self.name,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Item {
    pub sku: Sku,
    /// Name of the item for people.
    pub name: String,
    /// The name on Chinese pages; absent if it is `name` there, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_zh: Option<String>,
    /// Price of one unit, in cents.
    pub price_cents: i64,
    pub stock: i64,
    /// Maximum units per customer, in pending and paid orders; absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<i64>,
    /// What it is, in plain text with line breaks; absent if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True if the shop no longer lists or sells it; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl Item {
    pub fn new(sku: Sku, name: String, price_cents: i64, stock: i64) -> Self {
        let (name_zh, limit_per_user, description) = (None, None, String::new());
        Self { sku, name, name_zh, price_cents, stock, limit_per_user, description, hidden: false }
    }

    pub fn throw_away(name: &str, price_cents: i64, stock: i64) -> Self {
        Self::new(Sku::throw_away(), name.to_owned(), price_cents, stock)
    }

    pub fn names(&self) -> ItemNames {
        ItemNames { name: self.name.clone(), name_zh: self.name_zh.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestedLine {
    pub sku: Sku,
    /// Units: 1 to 1,000.
    #[schema(minimum = 1, maximum = 1000)]
    pub quantity: i64,
}

/// A value before a change, the change, and the value after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValueChange {
    pub before: i64,
    /// Difference; negative for a decrease.
    pub delta: i64,
    pub after: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderLine {
    pub sku: Sku,
    pub quantity: i64,
    /// Price of one unit at the time of the order.
    pub unit_price_cents: i64,
    /// The item's names at the time of the order, for pages and files; the API identifies an item
    /// by its sku.
    #[serde(skip)]
    pub names: Arc<ItemNames>,
    /// Change of the stock by placing the order; for an item in units, of the line's own units (3,
    /// −3, 0).
    pub stock: ValueChange,
}

#[derive(
    Serialize, Deserialize, ToSchema, sqlx::Type, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderStatus {
    /// Placed, not paid; its units are taken from stock.
    Pending,
    Paid,
    /// Cancelled by its customer, or expired; its units were returned.
    Cancelled,
    /// Refunded; units and money were returned.
    Refunded,
}

impl OrderStatus {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum ItemKind {
    /// Sale to customers.
    Shop,
    /// Experiments of the lab.
    Lab,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Order {
    pub id: OrderId,
    /// An order that was not paid in time is `cancelled` too, with `expired`.
    pub status: OrderStatus,
    /// Its price, in cents.
    pub total_cents: i64,
    /// Its lines, by sku.
    pub lines: Vec<OrderLine>,
    /// End of the time to pay.
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
    /// True if the order was cancelled because it was not paid in time, not by its customer; absent
    /// otherwise. Its return in the stock ledger has the reason `expiry`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

impl Order {
    pub fn skus(&self) -> Vec<Sku> {
        self.lines.iter().map(|line| line.sku.clone()).collect()
    }

    /// Returns items and quantities, sorted by sku.
    pub fn units(&self) -> Vec<(Sku, i64)> {
        self.lines.iter().map(|line| (line.sku.clone(), line.quantity)).collect()
    }
}

/// A paid order, and the change of the balance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaidOrder {
    /// The order as it is now.
    pub order: Order,
    /// Change of the account's balance.
    pub balance: ValueChange,
}

/// A cancelled or refunded order, and the units and money returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReturnedOrder {
    /// The order as it is now.
    pub order: Order,
    /// The units returned to stock, by sku.
    pub stock: BTreeMap<String, ValueChange>,
    /// The money returned to the account, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub balance: Option<ValueChange>,
}

/// What an admin changed, in the words of the admin log.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, sqlx::Type, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[sqlx(type_name = "text", rename_all = "kebab-case")]
pub enum AdminAction {
    CreateItem,
    EditItem,
    CancelOrder,
    RefundOrder,
    DisableUser,
    EnableUser,
    EndSessions,
    SetPassword,
}

impl AdminAction {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The description of a change in the admin log. It must not contain a password or anything made
/// of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminEntry {
    pub action: AdminAction,
    /// The sku of an item, or the id of a user or an order.
    pub subject: String,
    /// The changed fields.
    pub before: Value,
    pub after: Value,
}

/// An entry of the admin log.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LoggedChange {
    /// Number of the entry, and cursor for paging.
    pub seq: i64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The admin who made the change.
    pub admin: String,
    pub action: AdminAction,
    /// The sku of the item, or the id of the user or the order, that was changed.
    pub subject: String,
    /// The present name of that user, or of the order's customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The changed fields as they were.
    #[schema(value_type = Object)]
    pub before: Value,
    /// The changed fields as they became.
    #[schema(value_type = Object)]
    pub after: Value,
    /// The request that made it.
    pub request_id: Uuid,
}

/// A ledger entry: one change of one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    /// Number of the entry, and cursor for paging.
    pub seq: i64,
    pub before: i64,
    /// Difference; negative for a decrease.
    pub delta: i64,
    pub after: i64,
    /// Version of the row at which `before` was read. Two entries with the same version are a fork.
    pub version: i64,
    /// Reason of the change, e.g. `order`.
    pub reason: String,
    /// The order it belongs to, if any.
    pub order_id: Option<OrderId>,
    /// Fence of the lock it was written under, if the lock has one.
    pub fence: Option<i64>,
    /// The request that wrote it.
    pub request_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}
