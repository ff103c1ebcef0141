//! Queries of the ledgers. [`crate::store`] writes an entry together with its change; entries
//! are never changed or deleted.

use std::collections::HashMap;

use time::OffsetDateTime;

use crate::failure::Error;
use crate::model::LedgerEntry;
use crate::store::accounts::LAB_CENTS;
use crate::{OrderId, Shop, Sku, UserId};

macro_rules! entries {
    ($shop:expr, $rows:literal, $($argument:expr),+ $(,)?) => {{
        let entries = sqlx::query_as!(
            LedgerEntry,
            r#"select seq, before, delta, after, version, reason, order_id as "order_id: OrderId",
                      fence, request_id, at from "# + $rows,
            $($argument),+
        );
        Ok(entries.fetch_all(&mut *$shop.connection().await?).await?)
    }};
}

pub async fn stock_entries(
    shop: &Shop,
    sku: &Sku,
    after: i64,
    limit: i64,
) -> Result<Vec<LedgerEntry>, Error> {
    entries!(
        shop,
        "stock_ledger where sku = $1 and seq > $2 order by seq limit $3",
        sku.as_str(),
        after,
        limit,
    )
}

pub async fn balance_entries(
    shop: &Shop,
    user: UserId,
    after: i64,
    limit: i64,
) -> Result<Vec<LedgerEntry>, Error> {
    entries!(
        shop,
        "balance_ledger where user_id = $1 and seq > $2 order by seq limit $3",
        user.0,
        after,
        limit,
    )
}

/// Returns an item's latest entries before `before`, newest first.
pub async fn latest_stock_entries(
    shop: &Shop,
    sku: &Sku,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<LedgerEntry>, Error> {
    let entries = sqlx::query_file_as!(
        LedgerEntry,
        "src/query/latest_stock_entries.sql",
        sku.as_str(),
        before.unwrap_or(i64::MAX),
        limit,
    );
    Ok(entries.fetch_all(&mut *shop.connection().await?).await?)
}

/// Returns a user's latest entries before `before`, newest first.
pub async fn latest_balance_entries(
    shop: &Shop,
    user: UserId,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<LedgerEntry>, Error> {
    entries!(
        shop,
        "balance_ledger where user_id = $1 and seq < $2 order by seq desc limit $3",
        user.0,
        before.unwrap_or(i64::MAX),
        limit,
    )
}

/// Returns an order's entries in the stock ledger, each with its item, oldest first: two per line,
/// or of items in units two per unit, 2,000 at most. Fails if a line lacks its entry; one that
/// still waits for it has none yet.
pub async fn stock_entries_of_order(
    shop: &Shop,
    order: OrderId,
) -> Result<Vec<(Sku, LedgerEntry)>, Error> {
    // The entry of each line by the key that the line names: the ledger has no index on its orders
    // but that of returns.
    let rows = sqlx::query!(
        r#"select e.sku as "sku!: Sku", seq as "seq!", before as "before!", delta as "delta!",
                  after as "after!", version as "version!", reason as "reason!",
                  e.order_id as "order_id: OrderId", fence, request_id as "request_id!", at as "at!"
             from (select e.* from order_lines l
                     left join stock_ledger e on e.sku = l.sku and e.seq = l.entry_seq
                    where l.order_id = $1 and l.entry_seq <> 0
                   union all
                   select * from stock_ledger where order_id = $1 and reason <> 'order'
                   union all
                   select u.seq, u.sku, u.before, u.delta, u.after, u.version, u.reason, u.order_id,
                          u.fence, u.request_id, u.at
                     from unit_ledger u
                    where u.order_id = $1 and u.reason = 'order' and not exists (
                          select from order_lines l
                           where l.order_id = u.order_id and l.sku || '' = u.sku
                             and l.entry_seq = u.seq)) as e
            order by seq"#,
        order.0,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;

    let entries = rows.into_iter().map(|row| {
        let entry = LedgerEntry {
            seq: row.seq,
            before: row.before,
            delta: row.delta,
            after: row.after,
            version: row.version,
            reason: row.reason,
            order_id: row.order_id,
            fence: row.fence,
            request_id: row.request_id,
            at: row.at,
        };
        (row.sku, entry)
    });

    Ok(entries.collect())
}

/// Returns when the units of each of those orders were returned: when it was cancelled, expired or
/// refunded. The others are left out.
pub async fn returned_at(
    shop: &Shop,
    orders: &[OrderId],
) -> Result<HashMap<OrderId, OffsetDateTime>, Error> {
    let rows = sqlx::query!(
        r#"select order_id as "order!: OrderId", min(at) as "at!" from stock_ledger
            where order_id = any($1) and reason <> 'order' group by order_id"#,
        orders as &[OrderId],
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    Ok(rows.into_iter().map(|row| (row.order, row.at)).collect())
}

pub async fn balance_entries_of_order(
    shop: &Shop,
    order: OrderId,
) -> Result<Vec<LedgerEntry>, Error> {
    entries!(shop, "balance_ledger where order_id = $1 order by seq", order.0)
}

pub async fn balance(shop: &Shop, user: UserId) -> Result<Option<i64>, Error> {
    Ok(sqlx::query_scalar!("select balance_cents from accounts where user_id = $1", user.0)
        .fetch_optional(&mut *shop.connection().await?)
        .await?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balances {
    pub own_cents: i64,
    pub lab_cents: i64,
}

/// Returns a user's balances. A lab account that is not open yet has its opening balance.
pub async fn balances(shop: &Shop, user: UserId) -> Result<Balances, Error> {
    let row = sqlx::query!(
        r#"select (select balance_cents from accounts where user_id = $1) as own,
                  (select balance_cents from accounts where user_id = $2) as lab"#,
        user.0,
        user.lab_account().0,
    )
    .fetch_one(&mut *shop.connection().await?)
    .await?;

    Ok(Balances { own_cents: row.own.unwrap_or(0), lab_cents: row.lab.unwrap_or(LAB_CENTS) })
}
