//! Audit of one item. Of an item in units the chain is that of each unit, which begins with 1: the
//! opening entry is the item's. Its cost is bounded by its ledger, and by `MAX_UNITS` rows.

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
    pub sku: Sku,
    pub opening: i64,
    /// Units restocked since, less units removed.
    pub restocked: i64,
    /// Units in orders that are pending or paid.
    pub sold: i64,
    pub stock: i64,
    /// Stock minus the sum of the ledger: units changed without an entry.
    pub drift: i64,
    /// Units sold that never existed: the deepest fall of the ledger's running sum below zero.
    pub oversold: i64,
    /// Units of orders whose ledger entries are still to be written: the stock contains them.
    pub unsettled: i64,
    /// What a strategy counts in Redis; absent if there is no counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<i64>,
    /// Units that have left the counter, and that no order has: of orders that are on their way,
    /// and of those that were lost on it.
    pub undersold: i64,
    /// Entries whose `before` is not the previous entry's `after`, or that do not add up.
    pub breaks: i64,
    /// Entries computed from the same version.
    pub forks: Vec<LedgerFork>,
    /// True if there is no drift and no break, and all orders have their units.
    pub ok: bool,
}

impl ItemAudit {
    /// Returns the units missing from sales and stock; negative for a surplus.
    pub fn unaccounted(&self) -> i64 {
        self.opening + self.restocked - self.sold - (self.stock - self.unsettled)
    }
}

pub const MAX_RECENT_ENTRIES: i64 = 1_000;

/// The figures of an item's page: its running sums, and its latest [`MAX_RECENT_ENTRIES`] entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemSummary {
    pub opening: i64,
    pub restocked: i64,
    pub sold: i64,
    pub stock: i64,
    /// Stock minus the sum of the ledger; for a longer ledger, minus its running sums.
    pub drift: i64,
    /// Like those of [`ItemAudit`], among the examined entries.
    pub oversold: i64,
    pub breaks: i64,
    pub forks: i64,
    /// Like that of [`ItemAudit`].
    pub unsettled: i64,
    /// True if the ledger has no further entries.
    pub is_complete: bool,
}

impl ItemSummary {
    pub fn unaccounted(&self) -> i64 {
        self.opening + self.restocked - self.sold - self.stock
    }

    pub fn adds_up(&self) -> bool {
        self.unaccounted() == 0
            && self.drift == 0
            && self.breaks == 0
            && self.forks == 0
            && self.unsettled <= self.stock
    }
}

pub async fn summary(db: &mut PgConnection, sku: &Sku) -> Result<Option<ItemSummary>, Error> {
    // Any visitor may ask for it, so its cost is bounded: a longer ledger is not added up, and its
    // first examined entry is taken as the beginning of the chain.
    let summary = sqlx::query_file_as!(
        ItemSummary,
        "src/audit/summary.sql",
        sku.as_str(),
        MAX_RECENT_ENTRIES,
    )
    .fetch_optional(db)
    .await?;

    Ok(summary)
}

/// Returns the forks among the [`MAX_RECENT_ENTRIES`] entries before `before`, and as many after
/// it.
pub async fn forks_near(
    db: &mut PgConnection,
    sku: &Sku,
    before: i64,
) -> Result<Vec<LedgerFork>, Error> {
    let forks = sqlx::query_as!(
        LedgerFork,
        r#"select version as "version!", min(before) as "before!",
                  array_agg(seq order by seq) as "entries!"
             from ((select seq, version, before from stock_ledger
                     where sku = $1 and seq < $2 order by seq desc limit $3)
                   union all
                   (select seq, version, before from stock_ledger
                     where sku = $1 and seq >= $2 order by seq limit $3)) as near
            group by version having count(*) > 1 order by version"#,
        sku.as_str(),
        before,
        MAX_RECENT_ENTRIES,
    )
    .fetch_all(db)
    .await?;

    Ok(forks)
}

pub(super) async fn check(tx: &mut PgConnection, sku: &Sku) -> Result<Option<ItemAudit>, Error> {
    let row = sqlx::query!(
        r#"with entries as (
               select null::bigint as unit, seq, version, before, delta, after, reason, order_id
                 from only stock_ledger where sku = $1
                union all
               select unit, seq, version, before, delta, after, reason, order_id
                 from unit_ledger where sku = $1
           ), chain as (
               select unit, before, delta, after, reason, order_id,
                      lag(after, 1, start) over chain as previous,
                      start + sum(delta) over chain as running
                 from entries
                cross join lateral (
                      select case when unit is null then 0 else 1 end::bigint as start) as s
               window chain as (partition by unit order by version, seq)
           ), ledger as (
               select coalesce(sum(delta), 0)::bigint as total,
                      coalesce(sum(delta) filter (where reason = 'opening'), 0)::bigint as opening,
                      coalesce(sum(delta) filter (
                          where order_id is null and reason <> 'opening'), 0)::bigint as restocked,
                      (select sum(greatest(0, -lowest))
                         from (select min(running) as lowest from chain group by unit) as c
                      )::bigint as oversold,
                      count(*) filter (where before <> previous or after <> before + delta) as breaks
                 from chain
           ), of_units as (
               select count(*) > 0 as in_units, count(*) filter (where order_id is null) as free
                 from item_units where sku = $1
           ), orders_now as (
               select coalesce(sum(l.quantity), 0)::bigint as sold
                 from order_lines l join orders o on o.id = l.order_id
                where l.sku = $1 and o.status in ('pending', 'paid')
           )
           select case when in_units then free else i.stock end as "stock!", total as "total!",
                  (select coalesce(sum(quantity), 0)::bigint from unsettled_lines u
                    where u.sku = i.sku) as "unsettled!", ledger.opening as "opening!",
                  ledger.restocked as "restocked!", coalesce(oversold, 0) as "oversold!",
                  breaks as "breaks!", orders_now.sold as "sold!"
             from items i, ledger, of_units, orders_now where i.sku = $1"#,
        sku.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };

    // Of the same snapshot as the figures.
    let forks = ledger_forks(tx, sku).await?;

    let drift = row.stock - row.total;
    Ok(Some(ItemAudit {
        sku: sku.clone(),
        opening: row.opening,
        restocked: row.restocked,
        sold: row.sold,
        stock: row.stock,
        drift,
        // What its row has no units for is not in the ledger.
        oversold: row.oversold.max(row.unsettled - row.stock),
        unsettled: row.unsettled,
        counter: None,
        undersold: 0,
        breaks: row.breaks,
        forks,
        ok: drift == 0 && row.breaks == 0 && row.unsettled <= row.stock,
    }))
}

async fn ledger_forks(tx: &mut PgConnection, sku: &Sku) -> sqlx::Result<Vec<LedgerFork>> {
    sqlx::query_as!(
        LedgerFork,
        r#"select version, min(before) as "before!", array_agg(seq order by seq) as "entries!"
             from stock_ledger where sku = $1
            group by version having count(*) > 1 order by version"#,
        sku.as_str(),
    )
    .fetch_all(tx)
    .await
}
