//! Appending to the ledgers: what every way of changing a computed value does after its update.

use sqlx::PgConnection;

use super::{BalanceReading, Moved, Origin, StockReading};
use crate::shop::Error;

/// One entry per reading, in their order, with one statement. `fences` as many as readings.
pub(super) async fn append_stock(
    tx: &mut PgConnection,
    readings: &[StockReading],
    deltas: &[i64],
    fences: Option<&[i64]>,
    origin: Origin<'_>,
) -> Result<Vec<Moved>, Error> {
    let skus: Vec<String> = readings.iter().map(|reading| reading.sku.to_string()).collect();
    let befores: Vec<i64> = readings.iter().map(|reading| reading.stock).collect();
    let versions: Vec<i64> = readings.iter().map(|reading| reading.version).collect();
    let seqs = sqlx::query_scalar!(
        "insert into stock_ledger
             (sku, before, delta, after, version, fence, reason, order_id, request_id)
         select sku, before, delta, before + delta, version, fence, $6::text, $7, $8
           from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                with ordinality as new (sku, before, delta, version, fence, place)
          order by place
         returning seq",
        &skus,
        &befores,
        deltas,
        &versions,
        fences.unwrap_or(&[]),
        origin.reason,
        origin.order.map(|order| order.0),
        origin.request_id,
    )
    .fetch_all(tx)
    .await?;
    let moved =
        seqs.into_iter().zip(readings.iter().zip(deltas)).map(|(seq, (read, delta))| Moved {
            seq,
            before: read.stock,
            delta: *delta,
            after: read.stock + delta,
            version: read.version,
        });
    Ok(moved.collect())
}

/// The entry of one change of a balance.
pub(super) async fn append_balance(
    tx: &mut PgConnection,
    reading: BalanceReading,
    delta: i64,
    fence: Option<i64>,
    origin: Origin<'_>,
) -> Result<Moved, Error> {
    let after = reading.balance_cents + delta;
    let seq = sqlx::query_scalar!(
        "insert into balance_ledger
             (user_id, before, delta, after, version, fence, reason, order_id, request_id)
         values ($1, $2::bigint, $3, $4::bigint, $5, $6, $7::text, $8, $9)
         returning seq",
        reading.user.0,
        reading.balance_cents,
        delta,
        after,
        reading.version,
        fence,
        origin.reason,
        origin.order.map(|order| order.0),
        origin.request_id,
    )
    .fetch_one(tx)
    .await?;
    Ok(Moved { seq, before: reading.balance_cents, delta, after, version: reading.version })
}
