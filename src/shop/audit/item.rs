//! Audit of one item.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::super::{Error, Sku};

/// Two or more entries that were computed from the same version of the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerFork {
    /// The version they read.
    pub version: i64,
    /// The value they read.
    pub before: i64,
    /// Their numbers in the ledger.
    pub entries: Vec<i64>,
}

/// An item's ledger, compared with its stock and its orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemAudit {
    /// The item.
    pub sku: Sku,
    /// Opening stock.
    pub opening: i64,
    /// Units restocked since, less units removed.
    pub restocked: i64,
    /// Units in orders that are pending or paid.
    pub sold: i64,
    /// Units in stock.
    pub stock: i64,
    /// Stock minus the sum of the ledger: units changed without an entry.
    pub drift: i64,
    /// Units sold that never existed: the deepest fall of the ledger's running sum below zero.
    pub oversold: i64,
    /// Entries whose `before` is not the previous entry's `after`, or that do not add up.
    pub breaks: i64,
    /// Entries computed from the same version.
    pub forks: Vec<LedgerFork>,
    /// True if there is no drift and no break.
    pub ok: bool,
}

impl ItemAudit {
    /// Returns the units missing from sales and stock; negative for a surplus.
    pub fn unaccounted(&self) -> i64 {
        self.opening + self.restocked - self.sold - self.stock
    }
}

/// Audits one item in the caller's snapshot.
pub(super) async fn check(tx: &mut PgConnection, sku: &Sku) -> Result<Option<ItemAudit>, Error> {
    let row = sqlx::query!(
        r#"with chain as (
               select before, delta, after, reason, order_id,
                      lag(after, 1, 0) over chain as previous,
                      sum(delta) over chain as running
                 from stock_ledger where sku = $1
               window chain as (order by version, seq)
           ), ledger as (
               select coalesce(sum(delta), 0)::bigint as total,
                      coalesce(sum(delta) filter (where reason = 'opening'), 0)::bigint as opening,
                      coalesce(sum(delta) filter (
                          where order_id is null and reason <> 'opening'), 0)::bigint as restocked,
                      greatest(0, -min(running))::bigint as oversold,
                      count(*) filter (where before <> previous or after <> before + delta) as breaks
                 from chain
           ), orders_now as (
               select coalesce(sum(l.quantity), 0)::bigint as sold
                 from order_lines l join orders o on o.id = l.order_id
                where l.sku = $1 and o.status in ('pending', 'paid')
           )
           select i.stock, total as "total!", opening as "opening!", restocked as "restocked!",
                  coalesce(oversold, 0) as "oversold!", breaks as "breaks!", sold as "sold!"
             from items i, ledger, orders_now where i.sku = $1"#,
        sku.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let forks = sqlx::query!(
        r#"select version, min(before) as "before!", array_agg(seq order by seq) as "entries!"
             from stock_ledger where sku = $1
            group by version having count(*) > 1 order by version"#,
        sku.as_str(),
    )
    .fetch_all(tx)
    .await?;
    let drift = row.stock - row.total;
    Ok(Some(ItemAudit {
        sku: sku.clone(),
        opening: row.opening,
        restocked: row.restocked,
        sold: row.sold,
        stock: row.stock,
        drift,
        oversold: row.oversold,
        breaks: row.breaks,
        forks: forks
            .into_iter()
            .map(|fork| LedgerFork {
                version: fork.version,
                before: fork.before,
                entries: fork.entries,
            })
            .collect(),
        ok: drift == 0 && row.breaks == 0,
    }))
}
