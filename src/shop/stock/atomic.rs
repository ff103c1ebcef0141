//! `atomic`: one conditional statement, and the ledger from what it returns.
//!
//! # Guarantee
//! `set stock = stock + delta where stock + delta >= 0` reads and writes the newest row under
//! Postgres's own lock; there is no moment between. What was read before (price, what was shown) is
//! not what the change is computed from; but the item's limit per customer must be the one that was
//! read, because the order is written down and judged with it. Several items are changed in sorted
//! order.
//!
//! # Breaks when
//! Never for one number. It can't express a decision that needs more than the row itself: what a
//! customer has already is counted in a statement of its own, behind this one, whose lock on the
//! row makes it safe ([`crate::shop::customer_limit`]). And the row stays locked until the
//! transaction ends, so a hot item still sells one order at a time.
//!
//! # Seen in the wild
//! `update … set stock = stock - 1 where stock > 0`: what a review usually asks for.

use sqlx::PgConnection;

use super::{BalanceReading, Moved, Origin, Short, StockReading};
use crate::shop::Error;

/// Changes and records each item with one statement.
pub(super) async fn write_stock(
    tx: &mut PgConnection,
    readings: &[StockReading],
    deltas: &[i64],
    origin: Origin<'_>,
) -> Result<Result<Vec<Moved>, Short>, Error> {
    let mut moved = Vec::with_capacity(readings.len());
    for (at, (reading, delta)) in readings.iter().zip(deltas).enumerate() {
        // The trigger has raised the version by one: the one that was read is one less.
        let row = sqlx::query!(
            "with moved as (
                 update items set stock = stock + $2
                  where sku = $1 and stock + $2 >= 0
                    and limit_per_user is not distinct from $6
                 returning stock, version
             )
             insert into stock_ledger
                 (sku, before, delta, after, version, reason, order_id, request_id)
             select $1, stock - $2, $2, stock, version - 1, $3::text, $4, $5 from moved
             returning seq, before, after, version",
            reading.sku.as_str(),
            delta,
            origin.reason,
            origin.order.map(|order| order.0),
            origin.request_id,
            reading.limit_per_user,
        )
        .fetch_optional(&mut *tx)
        .await?;
        match row {
            Some(row) => moved.push(Moved {
                seq: row.seq,
                before: row.before,
                delta: *delta,
                after: row.after,
                version: row.version,
            }),
            None => {
                let available = sqlx::query_scalar!(
                    "select stock from items where sku = $1",
                    reading.sku.as_str()
                )
                .fetch_one(&mut *tx)
                .await?;
                return short(at, available, *delta).map(Err);
            }
        }
    }
    Ok(Ok(moved))
}

/// Changes and records an account with one statement.
pub(super) async fn write_balance(
    tx: &mut PgConnection,
    reading: BalanceReading,
    delta: i64,
    origin: Origin<'_>,
) -> Result<Result<Moved, Short>, Error> {
    let row = sqlx::query!(
        "with moved as (
             update accounts set balance_cents = balance_cents + $2
              where user_id = $1 and balance_cents + $2 >= 0
             returning balance_cents, version
         )
         insert into balance_ledger
             (user_id, before, delta, after, version, reason, order_id, request_id)
         select $1, balance_cents - $2, $2, balance_cents, version - 1, $3::text, $4, $5 from moved
         returning seq, before, after, version",
        reading.user.0,
        delta,
        origin.reason,
        origin.order.map(|order| order.0),
        origin.request_id,
    )
    .fetch_optional(&mut *tx)
    .await?;
    match row {
        Some(row) => Ok(Ok(Moved {
            seq: row.seq,
            before: row.before,
            delta,
            after: row.after,
            version: row.version,
        })),
        None => {
            let available = sqlx::query_scalar!(
                "select balance_cents from accounts where user_id = $1",
                reading.user.0
            )
            .fetch_one(tx)
            .await?;
            short(0, available, delta).map(Err)
        }
    }
}

/// How much there was is read a moment after the change was refused. If by then there is enough
/// (somebody has put some back, or it was the item's limit that is another), nobody is told *sold
/// out*, with enough on the shelf: it is tried again.
fn short(at: usize, available: i64, delta: i64) -> Result<Short, Error> {
    if available.saturating_add(delta) >= 0 {
        return Err(Error::Conflict("the row moved in this moment".to_owned()));
    }
    Ok(Short { at, available })
}
