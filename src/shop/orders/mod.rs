//! Orders: what one is, and reading them. Placing is in [`mod@place`], what happens to an order
//! afterwards in [`moves`], and when nothing does in [`unpaid`].

pub mod moves;
pub mod place;
mod together;
pub mod unpaid;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::stock::Moved;
use super::{Error, Key, OrderId, Refusal, Shop, Sku, UserId, catalog};

pub use moves::cancel;
pub use place::{check, place};

/// The most lines an order may have.
pub const MOST_LINES: usize = 50;
/// The most units of one line.
pub const MOST_UNITS: i64 = 1_000;

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedLine {
    /// Of which item.
    pub sku: Sku,
    /// How many: 1 to 1,000.
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

impl From<Moved> for Change {
    fn from(moved: Moved) -> Self {
        Self { before: moved.before, delta: moved.delta, after: moved.after }
    }
}

/// One line of an order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// Of which item.
    pub sku: Sku,
    /// How many.
    pub quantity: i64,
    /// At what price each.
    pub unit_price_cents: i64,
    /// What ordering it did to the stock.
    pub stock: Change,
}

/// An order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// `pending`, `paid`, `cancelled` or `refunded`. One that was not paid in time is `cancelled`
    /// too, with `expired`.
    #[schema(example = "pending")]
    pub status: String,
    /// What it costs, in cents.
    pub total_cents: i64,
    /// Its lines, by sku.
    pub lines: Vec<Line>,
    /// Until when it can be paid.
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
    /// out otherwise. Its entries in the stock's ledgers have the reason `expiry` then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

impl Order {
    /// How many of which item, sorted.
    pub(super) fn units(&self) -> Vec<(Sku, i64)> {
        self.lines.iter().map(|line| (line.sku.clone(), line.quantity)).collect()
    }
}

/// An order after it was moved, and what that moved.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Returned {
    /// The order as it is now.
    pub order: Order,
    /// What came back on the shelf, by sku.
    pub stock: BTreeMap<String, Change>,
    /// What came back on the account, if anything did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub balance: Option<Change>,
}

/// The refusal for an order that is not there, or not the caller's: the two look the same.
pub(super) fn no_such_order(order: OrderId) -> Refusal {
    Refusal::NotFound(format!("you have no order {order}"))
}

/// One of the user's orders.
///
/// # Errors
/// Postgres's.
pub async fn order(shop: &Shop, user: UserId, id: OrderId) -> Result<Option<Order>, Error> {
    find(&mut *shop.connection().await?, user, id).await
}

pub(super) async fn find(
    db: &mut PgConnection,
    user: UserId,
    id: OrderId,
) -> Result<Option<Order>, Error> {
    Ok(select(db, user, Some(id), None, Lab::With, 1).await?.pop())
}

/// How long each of those orders can still be paid, by Postgres's clock, which is the one that
/// decides it; an order whose time is over is not among them.
///
/// # Errors
/// Postgres's.
pub async fn time_left(shop: &Shop, ids: &[OrderId]) -> Result<HashMap<OrderId, Duration>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|order| order.0).collect();
    let rows = sqlx::query!(
        r#"select id, extract(epoch from expires_at - clock_timestamp())::float8 as "left_s!"
             from orders where id = any($1)"#,
        &ids,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    let left = rows.into_iter().filter(|row| row.left_s > 0.0);
    Ok(left.map(|row| (OrderId(row.id), Duration::from_secs_f64(row.left_s))).collect())
}

/// Whether orders of nothing but the lab's throw-away items are listed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lab {
    /// They are.
    With,
    /// Only orders that have an item of the shop.
    Without,
}

/// The user's orders, newest first, older than `after`.
///
/// # Errors
/// Postgres's.
pub async fn orders(
    shop: &Shop,
    user: UserId,
    after: Option<OrderId>,
    lab: Lab,
    limit: i64,
) -> Result<Vec<Order>, Error> {
    select(&mut *shop.connection().await?, user, None, after, lab, limit).await
}

/// How many of the user's orders are the lab's alone.
///
/// # Errors
/// Postgres's.
pub async fn count_lab(shop: &Shop, user: UserId) -> Result<i64, Error> {
    let count = sqlx::query_scalar!(
        r#"select count(*) as "count!" from orders o
            where user_id = $1
              and not exists (select from order_lines l
                                join items i on i.sku = l.sku and i.kind = 'shop'
                               where l.order_id = o.id)"#,
        user.0,
    )
    .fetch_one(&mut *shop.connection().await?)
    .await?;
    Ok(count)
}

/// Those of `ids` that are the lab's alone.
///
/// # Errors
/// Postgres's.
pub async fn lab_among(shop: &Shop, ids: &[OrderId]) -> Result<Vec<OrderId>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|order| order.0).collect();
    let lab = sqlx::query_scalar!(
        "select id from orders o
          where id = any($1)
            and not exists (select from order_lines l
                              join items i on i.sku = l.sku and i.kind = 'shop'
                             where l.order_id = o.id)",
        &ids,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    Ok(lab.into_iter().map(OrderId).collect())
}

/// The order that the user placed with that key, however long ago.
///
/// # Errors
/// Postgres's.
pub async fn placed_with(shop: &Shop, user: UserId, key: &Key) -> Result<Option<OrderId>, Error> {
    let id = sqlx::query_scalar!(
        "select id from orders where user_id = $1 and token = $2",
        user.0,
        key.as_str(),
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    Ok(id.map(OrderId))
}

/// Those of `ids` that are the user's own.
///
/// # Errors
/// Postgres's.
pub async fn own(shop: &Shop, user: UserId, ids: &[OrderId]) -> Result<Vec<OrderId>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|order| order.0).collect();
    let own = sqlx::query_scalar!(
        "select id from orders where user_id = $1 and id = any($2)",
        user.0,
        &ids,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    Ok(own.into_iter().map(OrderId).collect())
}

async fn select(
    db: &mut PgConnection,
    user: UserId,
    only: Option<OrderId>,
    after: Option<OrderId>,
    lab: Lab,
    limit: i64,
) -> Result<Vec<Order>, Error> {
    let rows = sqlx::query!(
        r#"select id, status, total_cents, expires_at, created_at, paid_at,
                  status = 'cancelled' and exists (
                      select from stock_ledger e
                       where e.order_id = o.id and e.reason = 'expiry') as "expired!"
             from orders o
            where user_id = $1 and ($2::uuid is null or id = $2) and ($3::uuid is null or id < $3)
              and ($5 or exists (select from order_lines l
                                   join items i on i.sku = l.sku and i.kind = 'shop'
                                  where l.order_id = o.id))
            order by id desc limit $4"#,
        user.0,
        only.map(|order| order.0),
        after.map(|order| order.0),
        limit,
        lab == Lab::With,
    )
    .fetch_all(&mut *db)
    .await?;
    let mut orders: Vec<Order> = rows
        .into_iter()
        .map(|row| Order {
            id: OrderId(row.id),
            status: row.status,
            total_cents: row.total_cents,
            lines: Vec::new(),
            expires_at: row.expires_at,
            created_at: row.created_at,
            paid_at: row.paid_at,
            expired: row.expired,
        })
        .collect();
    fill_lines(db, &mut orders).await?;
    Ok(orders)
}

async fn fill_lines(db: &mut PgConnection, orders: &mut [Order]) -> Result<(), Error> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.id.0).collect();
    let lines = sqlx::query!(
        "select l.order_id, l.sku, l.quantity, l.unit_price_cents, e.before, e.delta, e.after
           from order_lines l
           join stock_ledger e
             on e.order_id = l.order_id and e.sku = l.sku and e.reason = 'order'
          where l.order_id = any($1)
          order by l.order_id, l.sku",
        &ids,
    )
    .fetch_all(db)
    .await?;
    for row in lines {
        let Some(order) = orders.iter_mut().find(|order| order.id.0 == row.order_id) else {
            continue;
        };
        order.lines.push(Line {
            sku: catalog::known(row.sku)?,
            quantity: row.quantity,
            unit_price_cents: row.unit_price_cents,
            stock: Change { before: row.before, delta: row.delta, after: row.after },
        });
    }
    Ok(())
}
