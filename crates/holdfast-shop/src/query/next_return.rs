//! When reserved units of sold out items may return. Open pages of an item ask every three seconds:
//! a replica asks Postgres once a second for each item. Tests: `tests/it/next_return.rs`.

use std::collections::HashMap;
use std::time::Duration;

use moka::future::Cache;
use sqlx::PgConnection;
use time::OffsetDateTime;
use tokio::sync::OnceCell;

use crate::failure::Error;
use crate::{Shop, Sku};

const KEPT: Duration = Duration::from_secs(1);
/// Items whose results are kept at a time.
const MAX_KEPT: u64 = 1_000;
/// The pending orders that one statement looks through, for all of its items together.
const MAX_SCANNED: usize = 20_000;

/// When reserved units of a sold out item may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextReturn {
    /// The first of them is due then: unless it is paid, its units return.
    At(OffsetDateTime),
    NoneReserved,
    /// Not among the pending orders that were looked through, and there are more; or the look-up
    /// failed.
    Unknown,
}

/// The results of a replica, for a moment.
#[derive(Debug, Clone)]
pub struct NextReturns(Cache<Sku, NextReturn>);

impl Default for NextReturns {
    fn default() -> Self {
        Self(Cache::builder().time_to_live(KEPT).max_capacity(MAX_KEPT).build())
    }
}

/// Returns when reserved units of the items of a page may return.
pub async fn next_returns(shop: &Shop, skus: &[Sku]) -> HashMap<Sku, NextReturn> {
    // One statement for the page, unless the results of all its items are kept.
    let of_page = OnceCell::new();
    let mut returns = HashMap::new();
    for sku in skus {
        let look_up = async {
            let found = of_page.get_or_init(|| look_up(shop, skus)).await;
            found.get(sku).copied().unwrap_or(NextReturn::Unknown)
        };
        // Of those who ask at once for one item, one asks Postgres.
        let next = shop.next_returns.0.get_with_by_ref(sku, look_up).await;
        returns.insert(sku.clone(), next);
    }
    returns
}

/// Finds nothing if it fails: a page says the rest of what it knows.
async fn look_up(shop: &Shop, skus: &[Sku]) -> HashMap<Sku, NextReturn> {
    let found = async { Ok(next_returns_in(&mut *shop.connection().await?, skus).await?) };
    found.await.unwrap_or_else(|error: Error| {
        tracing::warn!(%error, "it is unknown when units of sold out items may return");
        HashMap::new()
    })
}

pub async fn next_returns_in(
    db: &mut PgConnection,
    skus: &[Sku],
) -> sqlx::Result<HashMap<Sku, NextReturn>> {
    let per_item = MAX_SCANNED / skus.len().max(1);

    // Through the pending orders, by the index on their due time, up to the first one of the item;
    // not through the lines of the item: a hot one has very many of paid orders. `limit 1` keeps
    // the planner from joining all, and `|| ''` from the index of the items, which looks as good as
    // the key by statistics from when an item had one line. Most often a unit is found, and the
    // orders are not counted.
    let rows = sqlx::query!(
        r#"select asked.sku as "sku!: Sku", found.expires_at as "at?",
                  found.expires_at is null
                  and exists (select from orders where status = 'pending'
                               order by expires_at offset $2) as "is_cut!"
             from unnest($1::text[]) as asked (sku)
             left join lateral (
                 select due.expires_at
                   from (select id, expires_at from orders where status = 'pending'
                          order by expires_at limit $2) as due
                  cross join lateral (
                      select from order_lines l
                       where l.order_id = due.id and l.sku || '' = asked.sku limit 1) as line
                  order by due.expires_at limit 1) as found on true"#,
        skus as &[Sku],
        i64::try_from(per_item).unwrap_or(i64::MAX),
    )
    .fetch_all(db)
    .await?;

    let returns = rows.into_iter().map(|row| {
        let next = match row.at {
            Some(at) => NextReturn::At(at),
            None if row.is_cut => NextReturn::Unknown,
            None => NextReturn::NoneReserved,
        };
        (row.sku, next)
    });
    Ok(returns.collect())
}
