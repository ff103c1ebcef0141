//! Conservation of stock: opening and restocked units equal sold units and stock, at any moment.
//!
//! Counts like [`super::item`], over all items of the shop in one statement, so the figures are of
//! one moment. A surplus of one item does not balance a shortage of another.
//!
//! Cost: an index scan for entries without an order, and a pass over lines of pending or paid
//! orders.

use crate::shop::{Error, Shop, Sku};

/// Figures of the whole shop, in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockConservation {
    /// Opening stock of all items.
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

    /// Returns the sum of all deviations, in units.
    pub fn total_deviation(&self) -> u64 {
        self.deviations.iter().map(|item| item.unaccounted.unsigned_abs()).sum()
    }
}

pub async fn conservation(shop: &Shop) -> Result<StockConservation, Error> {
    let row = sqlx::query!(
        r#"with by_hand as (
               select e.sku,
                      coalesce(sum(e.delta) filter (where e.reason = 'opening'), 0) as opening,
                      coalesce(sum(e.delta) filter (where e.reason <> 'opening'), 0) as restocked
                 from stock_ledger e join items i on i.sku = e.sku and i.kind = 'shop'
                where e.order_id is null group by e.sku
           ), in_orders as (
               select l.sku, sum(l.quantity) as sold
                 from order_lines l
                 join items i on i.sku = l.sku and i.kind = 'shop'
                 join orders o on o.id = l.order_id and o.status in ('pending', 'paid')
                group by l.sku
           ), shelves as (
               select i.sku, i.stock, coalesce(b.opening, 0) as opening,
                      coalesce(b.restocked, 0) as restocked, coalesce(o.sold, 0) as sold
                 from items i left join by_hand b using (sku) left join in_orders o using (sku)
                where i.kind = 'shop'
           ), sums as (
               select *, (opening + restocked - sold - stock)::bigint as unaccounted from shelves
           )
           select coalesce(sum(opening), 0)::bigint as "opening!",
                  coalesce(sum(restocked), 0)::bigint as "restocked!",
                  coalesce(sum(sold), 0)::bigint as "sold!",
                  coalesce(sum(stock), 0)::bigint as "stock!",
                  coalesce(array_agg(sku order by sku) filter (where unaccounted <> 0), '{}')
                      as "skus!",
                  coalesce(array_agg(unaccounted order by sku) filter (where unaccounted <> 0), '{}')
                      as "unaccounted!"
             from sums"#
    )
    .fetch_one(&mut *shop.connection().await?)
    .await?;
    let deviations = row.skus.into_iter().zip(row.unaccounted);
    Ok(StockConservation {
        opening: row.opening,
        restocked: row.restocked,
        sold: row.sold,
        stock: row.stock,
        deviations: deviations
            .map(|(sku, unaccounted)| Ok(StockDeviation { sku: Sku::stored(sku)?, unaccounted }))
            .collect::<Result<_, Error>>()?,
    })
}
