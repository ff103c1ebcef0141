//! When reserved units of sold out items may return. Open pages of an item ask every three seconds:
//! a replica asks Postgres once a second for each item. Tests: `tests/it/next_return.rs`.

use std::collections::HashMap;
use std::time::Duration;

use moka::future::Cache;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::failure::Error;
use crate::{Shop, Sku};

const KEPT: Duration = Duration::from_secs(1);
/// Items whose results are kept at a time.
const MAX_KEPT: u64 = 1_000;

/// When reserved units of a sold out item may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextReturn {
    /// The first of them is due then: unless it is paid, its units return.
    At(OffsetDateTime),
    NoneReserved,
}

/// The results of a replica, for a moment.
#[derive(Debug, Clone)]
pub struct NextReturns(Cache<Sku, NextReturn>);

impl Default for NextReturns {
    fn default() -> Self {
        Self(Cache::builder().time_to_live(KEPT).max_capacity(MAX_KEPT).build())
    }
}

/// Returns when reserved units of items may return.
pub async fn next_returns(shop: &Shop, skus: &[Sku]) -> Result<HashMap<Sku, NextReturn>, Error> {
    let mut returns = HashMap::new();
    for sku in skus {
        // Of those who ask at once for one item, one asks Postgres.
        let look_up = async { next_return_in(&mut *shop.connection().await?, sku).await };
        let next = shop.next_returns.0.try_get_with_by_ref(sku, look_up).await;
        returns.insert(sku.clone(), next.map_err(|error| Error::clone(&error))?);
    }
    Ok(returns)
}

pub async fn next_return_in(db: &mut PgConnection, sku: &Sku) -> Result<NextReturn, Error> {
    // Through the pending orders, by the index on their due time, up to the first one of the item;
    // not through the lines of the item: a hot one has very many of paid orders. `limit 1` keeps
    // the planner from joining all.
    let at = sqlx::query_scalar!(
        r#"select due.expires_at
             from (select id, expires_at from orders where status = 'pending'
                    order by expires_at) as due
            cross join lateral (
                select from order_lines l
                 where l.order_id = due.id and l.sku = $1 limit 1) as line
            order by due.expires_at limit 1"#,
        sku.as_str(),
    )
    .fetch_optional(db)
    .await?;
    Ok(at.map_or(NextReturn::NoneReserved, NextReturn::At))
}
