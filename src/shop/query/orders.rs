//! Queries of orders.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::PgConnection;

use crate::shop::failure::Error;
use crate::shop::idempotency::{ORDERS_PATH, record_id};
use crate::shop::model::{Order, OrderLine, OrderStatus, ValueChange};
use crate::shop::{IdempotencyKey, OrderId, Shop, Sku, UserId};

pub async fn order(shop: &Shop, user: UserId, id: OrderId) -> Result<Option<Order>, Error> {
    Ok(select_orders(shop, user, Some(id), None, LabOrders::With, 1).await?.pop())
}

/// Returns the time left to pay each order, by Postgres's clock, which decides about payments.
/// Orders whose time is over are absent.
pub async fn time_left(shop: &Shop, ids: &[OrderId]) -> Result<HashMap<OrderId, Duration>, Error> {
    let rows = sqlx::query!(
        r#"select id as "id: OrderId",
                  extract(epoch from expires_at - clock_timestamp())::float8 as "left_s!"
             from orders where id = any($1)"#,
        ids as &[OrderId],
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    let left = rows.into_iter().filter(|row| row.left_s > 0.0);
    Ok(left.map(|row| (row.id, Duration::from_secs_f64(row.left_s))).collect())
}

/// Filter for orders that contain only lab items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabOrders {
    /// Lists them too.
    With,
    /// Lists only orders that contain an item of the shop.
    Without,
}

/// Returns the user's orders, newest first, older than `after`.
pub async fn orders(
    shop: &Shop,
    user: UserId,
    after: Option<OrderId>,
    lab: LabOrders,
    limit: i64,
) -> Result<Vec<Order>, Error> {
    select_orders(shop, user, None, after, lab, limit).await
}

/// Counts the user's orders that contain only lab items.
pub async fn count_lab_orders(shop: &Shop, user: UserId) -> Result<i64, Error> {
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

/// Returns the orders among `ids` that contain only lab items.
pub async fn lab_orders_among(shop: &Shop, ids: &[OrderId]) -> Result<Vec<OrderId>, Error> {
    let lab = sqlx::query_scalar!(
        r#"select id as "id: OrderId" from orders o
            where id = any($1)
              and not exists (select from order_lines l
                                join items i on i.sku = l.sku and i.kind = 'shop'
                               where l.order_id = o.id)"#,
        ids as &[OrderId],
    );
    Ok(lab.fetch_all(&mut *shop.connection().await?).await?)
}

/// Returns the order that the user placed with a key, however long ago.
pub async fn order_placed_with(
    shop: &Shop,
    user: UserId,
    key: &IdempotencyKey,
) -> Result<Option<OrderId>, Error> {
    let id = sqlx::query_scalar!(
        r#"select order_id as "order_id: OrderId" from idempotency where id = $1"#,
        record_id(user, "POST", ORDERS_PATH, key),
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    Ok(id.flatten())
}

/// Returns the orders among `ids` that belong to the user.
pub async fn owned_among(
    shop: &Shop,
    user: UserId,
    ids: &[OrderId],
) -> Result<Vec<OrderId>, Error> {
    let owned = sqlx::query_scalar!(
        r#"select id as "id: OrderId" from orders where user_id = $1 and id = any($2)"#,
        user.0,
        ids as &[OrderId],
    );
    Ok(owned.fetch_all(&mut *shop.connection().await?).await?)
}

async fn select_orders(
    shop: &Shop,
    user: UserId,
    only: Option<OrderId>,
    after: Option<OrderId>,
    lab: LabOrders,
    limit: i64,
) -> Result<Vec<Order>, Error> {
    let read = shop.pool.read(move |db| {
        async move {
            let mut orders = select_without_lines(db, user, only, after, lab, limit).await?;
            fill_lines(db, &mut orders).await?;
            Ok(orders)
        }
        .boxed()
    });
    Ok(read.await?.0)
}

async fn select_without_lines(
    db: &mut PgConnection,
    user: UserId,
    only: Option<OrderId>,
    after: Option<OrderId>,
    lab: LabOrders,
    limit: i64,
) -> sqlx::Result<Vec<Order>> {
    let rows = sqlx::query!(
        r#"select id as "id: OrderId", status as "status: OrderStatus", total_cents, expires_at, created_at, paid_at,
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
        lab == LabOrders::With,
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Order {
            id: row.id,
            status: row.status,
            total_cents: row.total_cents,
            lines: Vec::new(),
            expires_at: row.expires_at,
            created_at: row.created_at,
            paid_at: row.paid_at,
            expired: row.expired,
        })
        .collect())
}

/// Fails, as a bug, if a line lacks its ledger entry: without the line, a cancellation
/// would return too little.
async fn fill_lines(db: &mut PgConnection, orders: &mut [Order]) -> sqlx::Result<()> {
    let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
    let lines = sqlx::query!(
        r#"select l.order_id as "order_id: OrderId", l.sku as "sku: Sku", l.quantity,
                  l.unit_price_cents, e.before as "before?", e.delta as "delta?",
                  e.after as "after?"
             from order_lines l
             left join stock_ledger e on e.sku = l.sku and e.seq = l.entry_seq
                                     and e.order_id = l.order_id
            where l.order_id = any($1)
            order by l.order_id, l.sku"#,
        &ids as &[OrderId],
    )
    .fetch_all(db)
    .await?;
    for row in lines {
        let Some(order) = orders.iter_mut().find(|order| order.id == row.order_id) else {
            continue;
        };
        let (Some(before), Some(delta), Some(after)) = (row.before, row.delta, row.after) else {
            return Err(missing_entry(row.order_id, &row.sku));
        };
        order.lines.push(OrderLine {
            sku: row.sku,
            quantity: row.quantity,
            unit_price_cents: row.unit_price_cents,
            stock: ValueChange { before, delta, after },
        });
    }
    Ok(())
}

/// The error of a line whose ledger entry is absent: the ledger was changed by hand.
fn missing_entry(order: OrderId, sku: &Sku) -> sqlx::Error {
    let message = format!("the line {sku} of order {order} lacks its ledger entry: run the audit");
    sqlx::Error::Decode(message.into())
}
