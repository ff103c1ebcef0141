//! Conservation of stock: opening and restocked units equal sold units and stock, at any moment.
//!
//! Adds up the items' running sums (`migrations/0001_shop.sql`), in one statement, so the
//! figures are of one moment. A surplus of one item does not balance a shortage of another. The
//! audit compares the running sums with ledgers and orders.
//!
//! Cost: one pass over the items, for a history of any length.

use futures_util::FutureExt as _;

use super::super::{Error, Sku};
use crate::db::Pool;

/// Figures of the whole shop, in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockConservation {
    pub items: i64,
    pub opening: i64,
    /// Units restocked since, less units removed.
    pub restocked: i64,
    /// Units in orders that are pending or paid.
    pub sold: i64,
    pub stock: i64,
    /// Items whose figures do not add up.
    pub deviations: Vec<StockDeviation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockDeviation {
    pub sku: Sku,
    /// Units missing from sales and stock; negative for a surplus.
    pub unaccounted: i64,
}

impl StockConservation {
    pub fn holds(&self) -> bool {
        self.deviations.is_empty()
    }

    pub fn total_deviation(&self) -> u64 {
        self.deviations.iter().map(|item| item.unaccounted.unsigned_abs()).sum()
    }
}

/// Reads the figures, within the time of acquiring a connection.
pub(super) async fn conservation(pool: &Pool) -> Result<StockConservation, Error> {
    let read = pool.read(|db| {
        let figures = sqlx::query!(
            r#"with sums as (
               select sku, opening, restocked, sold, stock,
                      opening + restocked - sold - stock as unaccounted
                 from items where kind = 'shop'
           )
           select count(*) as "items!",
                  coalesce(sum(opening), 0)::bigint as "opening!",
                  coalesce(sum(restocked), 0)::bigint as "restocked!",
                  coalesce(sum(sold), 0)::bigint as "sold!",
                  coalesce(sum(stock), 0)::bigint as "stock!",
                  coalesce(array_agg(sku::text order by sku) filter (where unaccounted <> 0), '{}')
                      as "skus!: Vec<Sku>",
                  coalesce(array_agg(unaccounted order by sku) filter (where unaccounted <> 0), '{}')
                      as "unaccounted!"
             from sums"#
        );
        async move { figures.fetch_one(db).await }.boxed()
    });
    let (row, _) = read.await?;

    let deviations = row.skus.into_iter().zip(row.unaccounted);
    Ok(StockConservation {
        items: row.items,
        opening: row.opening,
        restocked: row.restocked,
        sold: row.sold,
        stock: row.stock,
        deviations: deviations
            .map(|(sku, unaccounted)| StockDeviation { sku, unaccounted })
            .collect(),
    })
}
