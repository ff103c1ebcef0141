//! `row-lock`: read with `for no key update`, so that Postgres keeps the row.
//!
//! # Guarantee
//! From the read to the commit nobody else reads the row this way or writes it. Rows are locked in
//! sorted order, so two orders with the same items don't wait for each other for ever.
//!
//! `for no key update`, not `for update`: the stronger one would also block every insert that
//! refers to the row (the ledger's, the order lines'), and buys nothing.
//!
//! # Breaks when
//! It does not break; it stops. A process that is paused in its transaction holds the row, and
//! everybody waits until the session is ended for idling.
//!
//! # Seen in the wild
//! The usual cure for a lost update, and a good one, until an item becomes hot: one transaction at
//! a time, each with its round trips.

use sqlx::PgConnection;

use super::{BalanceReading, StockReading, read_then_update::Row};
use crate::shop::{Error, UserId};

/// Reads and locks the items, in the order of their skus.
pub(in crate::shop) async fn read_stock(
    tx: &mut PgConnection,
    skus: &[String],
) -> Result<Vec<StockReading>, Error> {
    let rows = match skus {
        // Planned once, as in `read_then_update`.
        [sku] => {
            let row = sqlx::query_as!(
                Row,
                "select sku, price_cents, stock, limit_per_user, version from items
                  where sku = $1 for no key update",
                sku,
            );
            row.fetch_all(tx).await?
        }
        skus => {
            let rows = sqlx::query_as!(
                Row,
                "select sku, price_cents, stock, limit_per_user, version from items
                  where sku = any($1) order by sku for no key update",
                skus,
            );
            rows.fetch_all(tx).await?
        }
    };
    rows.into_iter().map(StockReading::try_from).collect()
}

/// Reads and locks an account.
pub(super) async fn read_balance(
    tx: &mut PgConnection,
    user: UserId,
) -> Result<Option<BalanceReading>, Error> {
    let row = sqlx::query!(
        "select balance_cents, version from accounts where user_id = $1 for no key update",
        user.0
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| BalanceReading {
        user,
        balance_cents: row.balance_cents,
        version: row.version,
    }))
}
