//! Queries of orders.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::PgConnection;

use crate::failure::Error;
use crate::idempotency::Operation;
use crate::model::{ItemNames, Order, OrderLine, OrderStatus, ValueChange};
use crate::{IdempotencyKey, OrderId, Shop, Sku, UserId};

/// The newest orders of a user that are looked through for those of the shop's own items.
const MAX_SCANNED: i64 = 200;

#[derive(Debug)]
pub struct OrderList {
    pub orders: Vec<Order>,
    /// The orders of lab items among those that were looked through, listed or not.
    pub lab_orders: Vec<OrderId>,
    /// The cursor of the next page. It may follow less than a full page.
    pub more: Option<OrderId>,
}

pub async fn order(shop: &Shop, user: UserId, id: OrderId) -> Result<Option<Order>, Error> {
    let read = shop.pool.read(move |db| async move { select(db, Some(user), &[id]).await }.boxed());
    Ok(read.await?.0.pop())
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

/// Returns a page of the user's orders older than `after`. Without those of lab items it looks
/// through [`MAX_SCANNED`] orders at most: a user may have very many of the lab.
pub async fn page(
    shop: &Shop,
    user: UserId,
    after: Option<OrderId>,
    with_lab: bool,
    length: i64,
) -> Result<OrderList, Error> {
    let read = shop.pool.read(move |db| {
        async move {
            let limit = if with_lab { length + 1 } else { MAX_SCANNED };
            let scanned = scan(db, user, after, limit).await?;
            let listed = scanned.iter().filter(|(_, in_lab)| with_lab || !in_lab);
            let mut ids: Vec<OrderId> = listed.map(|(id, _)| *id).collect();

            // What was looked through in vain is behind the cursor, too: a page may be short, even
            // empty, and the next one still goes on.
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let more = if ids.len() > length {
                ids.truncate(length);
                ids.last().copied()
            } else {
                let is_cut = i64::try_from(scanned.len()) == Ok(limit);
                scanned.last().map(|(id, _)| *id).filter(|_| is_cut)
            };

            let lab_orders = scanned.into_iter().filter(|(_, in_lab)| *in_lab).map(|(id, _)| id);
            let lab_orders = lab_orders.filter(|id| more.is_none_or(|last| *id >= last)).collect();

            let orders = select(db, Some(user), &ids).await?;
            Ok(OrderList { orders, lab_orders, more })
        }
        .boxed()
    });
    Ok(read.await?.0)
}

pub async fn is_of_lab_items(shop: &Shop, id: OrderId) -> Result<bool, Error> {
    let in_lab = sqlx::query_scalar!(
        r#"select not exists (select from order_lines l
                                join items i on i.sku = l.sku and i.kind = 'shop'
                               where l.order_id = $1) as "in_lab!""#,
        id.0,
    );
    Ok(in_lab.fetch_one(&mut *shop.connection().await?).await?)
}

/// Returns the order that the user placed with a key, however long ago.
pub async fn order_placed_with(
    shop: &Shop,
    user: UserId,
    key: &IdempotencyKey,
) -> Result<Option<OrderId>, Error> {
    let id = sqlx::query_scalar!(
        r#"select order_id as "order_id: OrderId" from idempotency where id = $1"#,
        Operation::PlaceOrder.record_id(user, key),
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    Ok(id.flatten())
}

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

/// Returns the newest orders of a user that are older than `after`, and whether they have lab
/// items only.
async fn scan(
    db: &mut PgConnection,
    user: UserId,
    after: Option<OrderId>,
    limit: i64,
) -> sqlx::Result<Vec<(OrderId, bool)>> {
    // By id, which is minted by time: the index of a user's orders serves the page and its order.
    sqlx::query!(
        r#"select id as "id: OrderId",
                  not exists (select from order_lines l
                                join items i on i.sku = l.sku and i.kind = 'shop'
                               where l.order_id = o.id) as "in_lab!"
             from orders o
            where user_id = $1 and id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
            order by id desc limit $3"#,
        user.0,
        after.map(|order| order.0),
        limit,
    )
    .map(|row| (row.id, row.in_lab))
    .fetch_all(db)
    .await
}

/// Returns those of the orders that are the user's, or without a user all, newest first.
pub(super) async fn select(
    db: &mut PgConnection,
    user: Option<UserId>,
    ids: &[OrderId],
) -> sqlx::Result<Vec<Order>> {
    let rows = sqlx::query!(
        r#"select id as "id: OrderId", status as "status: OrderStatus", total_cents, expires_at, created_at, paid_at,
                  status = 'cancelled' and exists (
                      select from stock_ledger e
                       where e.order_id = o.id and e.reason = 'expiry') as "expired!"
             from orders o
            where ($1::uuid is null or user_id = $1) and id = any($2) order by id desc"#,
        user.map(|user| user.0),
        ids as &[OrderId],
    )
    .fetch_all(&mut *db)
    .await?;

    let orders = rows.into_iter().map(|row| Order {
        id: row.id,
        status: row.status,
        total_cents: row.total_cents,
        lines: Vec::new(),
        expires_at: row.expires_at,
        created_at: row.created_at,
        paid_at: row.paid_at,
        expired: row.expired,
    });
    let mut orders: Vec<Order> = orders.collect();

    fill_lines(db, &mut orders).await?;
    Ok(orders)
}

/// Fails, as a bug, if a line lacks its ledger entry and does not wait for it: without the line, a
/// cancellation would return too little.
async fn fill_lines(db: &mut PgConnection, orders: &mut [Order]) -> sqlx::Result<()> {
    let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
    let lines = sqlx::query!(
        r#"select l.order_id as "order_id: OrderId", l.sku as "sku: Sku", l.quantity,
                  l.unit_price_cents, l.name, l.name_zh, coalesce(e.before, u.before) as before,
                  coalesce(e.delta, -u.quantity) as delta,
                  coalesce(e.after, u.before - u.quantity) as after,
                  e.tableoid = 'unit_ledger'::regclass as in_units
             from order_lines l
             left join stock_ledger e on e.sku = l.sku and e.seq = l.entry_seq
                                     and e.order_id = l.order_id
             left join unsettled_lines u on u.sku = l.sku and u.order_id = l.order_id
                                        and l.entry_seq = 0
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

        // In units the line names the entry of its first unit, and has a like one for each.
        let entries = if row.in_units == Some(true) { row.quantity } else { 1 };
        let stock = ValueChange {
            before: before * entries,
            delta: delta * entries,
            after: after * entries,
        };
        order.lines.push(OrderLine {
            sku: row.sku,
            quantity: row.quantity,
            unit_price_cents: row.unit_price_cents,
            names: Arc::new(ItemNames { name: row.name, name_zh: row.name_zh }),
            stock,
        });
    }
    Ok(())
}

/// The error of a line whose ledger entry is absent: the ledger was changed by hand.
fn missing_entry(order: OrderId, sku: &Sku) -> sqlx::Error {
    let message = format!("the line {sku} of order {order} lacks its ledger entry: run the audit");
    sqlx::Error::Decode(message.into())
}
