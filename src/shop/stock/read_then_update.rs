//! Read, compute, write back: the way most shops change a number.
//!
//! # Guarantee
//! Correct whenever nobody else changes the value between the read and the commit. The module does
//! nothing to make that so: a lock around it must ([`super::Exclusion`] says which).
//!
//! # Breaks when
//! Two requests read the same value. Both write what they computed, the second write replaces the
//! first, and one sale leaves no trace on the shelf. No constraint is violated. The ledger shows
//! it: both entries carry the same `before` and `version`.
//!
//! # Seen in the wild
//! Any `order.stock = order.stock - 1; save()` of an object mapper.

use sqlx::PgConnection;

use super::{BalanceReading, Moved, Origin, Short, StockReading, entries};
use crate::shop::{Error, Sku, UserId};

/// Reads the items without locking them, sorted by sku.
pub(super) async fn read_stock(
    tx: &mut PgConnection,
    skus: &[String],
) -> Result<Vec<StockReading>, Error> {
    let rows = match skus {
        // Planned once: for a list of keys Postgres makes its plan anew each time.
        [sku] => {
            let row = sqlx::query_as!(
                Row,
                "select sku, price_cents, stock, limit_per_user, version from items
                  where sku = $1",
                sku,
            );
            row.fetch_all(tx).await?
        }
        skus => {
            let rows = sqlx::query_as!(
                Row,
                "select sku, price_cents, stock, limit_per_user, version from items
                  where sku = any($1) order by sku",
                skus,
            );
            rows.fetch_all(tx).await?
        }
    };
    rows.into_iter().map(StockReading::try_from).collect()
}

/// What is read of an item.
pub(super) struct Row {
    pub(super) sku: String,
    pub(super) price_cents: i64,
    pub(super) stock: i64,
    pub(super) limit_per_user: Option<i64>,
    pub(super) version: i64,
}

impl TryFrom<Row> for StockReading {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let Row { sku, price_cents, stock, limit_per_user, version } = row;
        let sku = Sku::try_from(sku).map_err(|error| Error::Bug(error.to_owned()))?;
        Ok(Self { sku, price_cents, stock, limit_per_user, version })
    }
}

/// What each item will have afterwards, or which of them falls short.
pub(super) fn afters(readings: &[StockReading], deltas: &[i64]) -> Result<Vec<i64>, Short> {
    let sums = readings.iter().zip(deltas).enumerate();
    sums.map(|(at, (reading, delta))| match reading.stock + delta {
        after if after < 0 => Err(Short { at, available: reading.stock }),
        after => Ok(after),
    })
    .collect()
}

/// Writes what was read plus the delta, then the ledger: all rows with two statements.
pub(super) async fn write_stock(
    tx: &mut PgConnection,
    readings: &[StockReading],
    deltas: &[i64],
    origin: Origin<'_>,
) -> Result<Result<Vec<Moved>, Short>, Error> {
    let afters = match afters(readings, deltas) {
        Ok(afters) => afters,
        Err(short) => return Ok(Err(short)),
    };
    let skus: Vec<String> = readings.iter().map(|reading| reading.sku.to_string()).collect();
    sqlx::query!(
        "update items set stock = new.stock
           from unnest($1::text[], $2::bigint[]) as new (sku, stock)
          where items.sku = new.sku",
        &skus,
        &afters,
    )
    .execute(&mut *tx)
    .await?;
    Ok(Ok(entries::append_stock(tx, readings, deltas, None, origin).await?))
}

/// Reads an account without locking it.
pub(super) async fn read_balance(
    tx: &mut PgConnection,
    user: UserId,
) -> Result<Option<BalanceReading>, Error> {
    let row =
        sqlx::query!("select balance_cents, version from accounts where user_id = $1", user.0)
            .fetch_optional(tx)
            .await?;
    Ok(row.map(|row| BalanceReading {
        user,
        balance_cents: row.balance_cents,
        version: row.version,
    }))
}

/// Writes what was read plus the delta, then the ledger.
pub(super) async fn write_balance(
    tx: &mut PgConnection,
    reading: BalanceReading,
    delta: i64,
    origin: Origin<'_>,
) -> Result<Result<Moved, Short>, Error> {
    let after = reading.balance_cents + delta;
    if after < 0 {
        return Ok(Err(Short { at: 0, available: reading.balance_cents }));
    }
    sqlx::query!(
        "update accounts set balance_cents = $2::bigint where user_id = $1",
        reading.user.0,
        after
    )
    .execute(&mut *tx)
    .await?;
    Ok(Ok(entries::append_balance(tx, reading, delta, None, origin).await?))
}
