//! When reserved units of sold out items may return. Tests: `tests/it/next_return.rs`.

use std::collections::HashMap;

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::failure::Error;
use crate::{Shop, Sku};

/// The pending orders, those due first, that are looked through for reserved units.
const MAX_PENDING_SCANNED: i64 = 1_000;

/// When reserved units of a sold out item may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextReturn {
    /// The first of them is due then: unless it is paid, its units return.
    At(OffsetDateTime),
    NoneReserved,
    /// Not among the pending orders that were looked through, and there are more.
    Unknown,
}

/// Returns when reserved units of items may return.
pub async fn next_returns(shop: &Shop, skus: &[Sku]) -> Result<HashMap<Sku, NextReturn>, Error> {
    if skus.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(next_returns_in(&mut *shop.connection().await?, skus).await?)
}

pub async fn next_returns_in(
    db: &mut PgConnection,
    skus: &[Sku],
) -> sqlx::Result<HashMap<Sku, NextReturn>> {
    // Through the pending orders, by the index on their due time, and not through the lines of the
    // item: a hot one has very many of paid orders. `limit 1` keeps the planner from joining all.
    let rows = sqlx::query!(
        r#"select asked.sku as "sku!: Sku", found.expires_at as "at?"
             from unnest($1::text[]) as asked (sku)
             left join lateral (
                 select due.expires_at
                   from (select id, expires_at from orders where status = 'pending'
                          order by expires_at limit $2) as due
                  cross join lateral (
                      select from order_lines l
                       where l.order_id = due.id and l.sku = asked.sku limit 1) as line
                  order by due.expires_at limit 1) as found on true"#,
        skus as &[Sku],
        MAX_PENDING_SCANNED,
    )
    .fetch_all(&mut *db)
    .await?;

    // Most often a reserved unit is found, and nobody needs to know.
    let is_all_found = rows.iter().all(|row| row.at.is_some());
    let without = match is_all_found || has_more_pending(db).await? {
        true => NextReturn::Unknown,
        false => NextReturn::NoneReserved,
    };
    let returns = rows.into_iter().map(|row| (row.sku, row.at.map_or(without, NextReturn::At)));
    Ok(returns.collect())
}

async fn has_more_pending(db: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select from orders where status = 'pending'
                           order by expires_at offset $1) as "more!""#,
        MAX_PENDING_SCANNED,
    )
    .fetch_one(db)
    .await
}
