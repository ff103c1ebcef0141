//! Loads the books of some items and users from Postgres.

use std::collections::BTreeMap;

use sqlx::{Connection as _, PgConnection};

use super::{Books, Entry, Ledger, Order, Value};
use crate::db::Pool;
use crate::shop::audit::snapshot;
use crate::shop::{Error, OrderId, Sku, UserId};

/// Loads the complete books of these items and of these users' accounts, if any, in one
/// repeatable-read snapshot. Items and users that do not exist are absent.
///
/// Must be called after the end of the history: a response in transit may be that of an order that
/// is not in the snapshot yet.
pub async fn load(pool: &Pool, skus: &[Sku], users: &[UserId]) -> Result<Books, Error> {
    let skus: Vec<String> = skus.iter().map(Sku::to_string).collect();
    let users: Vec<uuid::Uuid> = users.iter().map(|user| user.0).collect();
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    snapshot(&mut tx).await?;
    let stock = stock(&mut tx, &skus).await?;
    let money = if users.is_empty() { None } else { Some(money(&mut tx, &users).await?) };
    let orders = orders(&mut tx, &skus, &users).await?;
    tx.rollback().await?;
    Ok(Books { stock, money, orders })
}

/// Converts a row of either ledger to an [`Entry`] of a key.
macro_rules! entry {
    ($row:ident, $key:expr) => {
        Entry {
            key: $key,
            seq: $row.seq,
            before: $row.before,
            delta: $row.delta,
            after: $row.after,
            version: $row.version,
            fence: $row.fence,
            order: $row.order_id.map(OrderId),
            reason: $row.reason,
            request: $row.request_id,
        }
    };
}

async fn stock(tx: &mut PgConnection, skus: &[String]) -> Result<Ledger, Error> {
    let values = sqlx::query!("select sku, stock from items where sku = any($1)", skus)
        .fetch_all(&mut *tx)
        .await?;
    let rows = sqlx::query!(
        "select sku, seq, before, delta, after, version, fence, order_id, reason, request_id
           from stock_ledger where sku = any($1) order by sku, version, seq",
        skus,
    )
    .fetch_all(tx)
    .await?;
    Ok(Ledger {
        values: values.into_iter().map(|row| (row.sku, at(row.stock))).collect(),
        entries: rows.into_iter().map(|row| entry!(row, row.sku)).collect(),
    })
}

async fn money(tx: &mut PgConnection, users: &[uuid::Uuid]) -> Result<Ledger, Error> {
    let values =
        sqlx::query!("select user_id, balance_cents from accounts where user_id = any($1)", users)
            .fetch_all(&mut *tx)
            .await?;
    let rows = sqlx::query!(
        "select user_id, seq, before, delta, after, version, fence, order_id, reason, request_id
           from balance_ledger where user_id = any($1) order by user_id, version, seq",
        users,
    )
    .fetch_all(tx)
    .await?;
    Ok(Ledger {
        values: values
            .into_iter()
            .map(|row| (row.user_id.to_string(), at(row.balance_cents)))
            .collect(),
        entries: rows.into_iter().map(|row| entry!(row, row.user_id.to_string())).collect(),
    })
}

/// Returns a value with an opening of 0: the ledgers are complete.
fn at(now: i64) -> Value {
    Value { opening: 0, now }
}

async fn orders(
    tx: &mut PgConnection,
    skus: &[String],
    users: &[uuid::Uuid],
) -> Result<Vec<Order>, Error> {
    let rows = sqlx::query!(
        "select id, user_id, token, status, total_cents from orders
          where user_id = any($2)
             or id in (select order_id from order_lines where sku = any($1))
          order by id",
        skus,
        users,
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut lines: BTreeMap<uuid::Uuid, Vec<(String, i64)>> = BTreeMap::new();
    let all =
        sqlx::query!("select order_id, sku, quantity from order_lines where sku = any($1)", skus)
            .fetch_all(tx)
            .await?;
    for line in all {
        lines.entry(line.order_id).or_default().push((line.sku, line.quantity));
    }
    Ok(rows
        .into_iter()
        .map(|row| Order {
            id: OrderId(row.id),
            user: UserId(row.user_id),
            token: row.token,
            status: row.status,
            total_cents: row.total_cents,
            lines: lines.remove(&row.id).unwrap_or_default(),
        })
        .collect())
}
