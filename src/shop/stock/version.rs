//! `version`: write only if the row is still as it was read.
//!
//! # Guarantee
//! Every write raises the row's version, and every write demands the version that it read: of two
//! that read the same one, the second finds no row, and its whole transaction begins again, reading
//! anew. Nobody waits for anybody while thinking; nothing is locked but for the moment of writing.
//!
//! # Breaks when
//! It does not break; it gives up. In a crowd on one row one of all gets through per round and the
//! others have worked for nothing. The attempts are bounded, with a random pause between them that
//! grows; whoever loses all of them is told that there is too much to do.
//!
//! # Seen in the wild
//! `@Version` of JPA, `lock_version` of Rails, `ETag` and `If-Match` of HTTP: the optimistic lock.
//! Often without the retry, so that the second person loses what they typed.

use sqlx::PgConnection;

use super::{BalanceReading, Moved, Origin, Short, StockReading, entries, read_then_update};
use crate::shop::Error;

/// Writes all rows and their entries, or none: whoever gets an error must roll back.
pub(super) async fn write_stock(
    tx: &mut PgConnection,
    readings: &[StockReading],
    deltas: &[i64],
    origin: Origin<'_>,
) -> Result<Result<Vec<Moved>, Short>, Error> {
    let afters = match read_then_update::afters(readings, deltas) {
        Ok(afters) => afters,
        Err(short) => return Ok(Err(short)),
    };
    for (reading, after) in readings.iter().zip(afters) {
        // One by one, in the order of their skus: so no two wait for each other in a circle.
        let written = sqlx::query!(
            "update items set stock = $2::bigint where sku = $1 and version = $3",
            reading.sku.as_str(),
            after,
            reading.version,
        )
        .execute(&mut *tx)
        .await?;
        if written.rows_affected() == 0 {
            return Err(moved_on());
        }
    }
    Ok(Ok(entries::append_stock(tx, readings, deltas, None, origin).await?))
}

/// Writes the balance and its entry, or nothing.
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
    let written = sqlx::query!(
        "update accounts set balance_cents = $2::bigint where user_id = $1 and version = $3",
        reading.user.0,
        after,
        reading.version,
    )
    .execute(&mut *tx)
    .await?;
    if written.rows_affected() == 0 {
        return Err(moved_on());
    }
    Ok(Ok(entries::append_balance(tx, reading, delta, None, origin).await?))
}

/// The whole transaction is tried again.
fn moved_on() -> Error {
    Error::Conflict("the row moved between read and write".to_owned())
}
