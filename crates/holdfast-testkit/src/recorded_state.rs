//! Reads the recorded state of some items and users from Postgres, for the history checker.

use std::collections::BTreeMap;

use holdfast_checker::{RecordedEntry, RecordedOrder, RecordedState};
use holdfast_shop::{OrderId, UserId};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// Reads the complete ledgers of these items and of these users' accounts, if any, and their
/// orders, in one snapshot. Items and users that do not exist are absent.
///
/// Must be called after the end of the history: a response in transit may be that of an order that
/// is not in the snapshot yet.
pub async fn read(pool: &PgPool, skus: &[impl ToString], users: &[UserId]) -> RecordedState {
    let skus: Vec<String> = skus.iter().map(ToString::to_string).collect();
    let users: Vec<Uuid> = users.iter().map(|user| user.0).collect();
    let mut tx = pool.begin().await.unwrap();
    sqlx::raw_sql("set transaction isolation level repeatable read, read only")
        .execute(&mut *tx)
        .await
        .unwrap();
    let mut state = RecordedState::default();
    ledger(
        &mut tx,
        "select sku, stock from items where sku = any($1)",
        "select sku, seq, before, delta, after, version, fence, order_id, reason, request_id
           from stock_ledger where sku = any($1)",
        skus.clone(),
        &mut state,
    )
    .await;
    ledger(
        &mut tx,
        "select user_id::text, balance_cents from accounts where user_id = any($1)",
        "select user_id::text, seq, before, delta, after, version, fence, order_id, reason,
                request_id
           from balance_ledger where user_id = any($1)",
        users.clone(),
        &mut state,
    )
    .await;
    state.orders = orders(&mut tx, &skus, &users).await;
    tx.rollback().await.unwrap();
    state
}

/// Key, seq, before, delta, after, version, fence, order, reason and request of an entry.
type EntryRow = (String, i64, i64, i64, i64, i64, Option<i64>, Option<Uuid>, String, Uuid);

/// Adds the values and the entries of `keys`.
async fn ledger<K>(
    tx: &mut PgConnection,
    values: &'static str,
    entries: &'static str,
    keys: Vec<K>,
    state: &mut RecordedState,
) where
    Vec<K>: Clone + Send + for<'q> sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    K: Send + 'static,
{
    let values: Vec<(String, i64)> =
        sqlx::query_as(values).bind(keys.clone()).fetch_all(&mut *tx).await.unwrap();
    state.values.extend(values);
    let rows: Vec<EntryRow> = sqlx::query_as(entries).bind(keys).fetch_all(tx).await.unwrap();
    state.entries.extend(rows.into_iter().map(|row| {
        let (key, seq, before, delta, after, version, fence, order, reason, request) = row;
        let order = order.map(OrderId);
        RecordedEntry { key, seq, before, delta, after, version, fence, order, reason, request }
    }));
}

async fn orders(tx: &mut PgConnection, skus: &[String], users: &[Uuid]) -> Vec<RecordedOrder> {
    let rows: Vec<(Uuid, Uuid, String, String, i64)> = sqlx::query_as(
        "select id, user_id, token, status, total_cents from orders
          where user_id = any($2)
             or id in (select order_id from order_lines where sku = any($1))
          order by id",
    )
    .bind(skus)
    .bind(users)
    .fetch_all(&mut *tx)
    .await
    .unwrap();
    let all: Vec<(Uuid, String, i64)> =
        sqlx::query_as("select order_id, sku, quantity from order_lines where sku = any($1)")
            .bind(skus)
            .fetch_all(tx)
            .await
            .unwrap();
    let mut lines: BTreeMap<Uuid, Vec<(String, i64)>> = BTreeMap::new();
    for (order, sku, quantity) in all {
        lines.entry(order).or_default().push((sku, quantity));
    }
    let orders = rows.into_iter().map(|(id, user, token, status, total_cents)| RecordedOrder {
        id: OrderId(id),
        user: UserId(user),
        token,
        status,
        total_cents,
        lines: lines.remove(&id).unwrap_or_default(),
    });
    orders.collect()
}
