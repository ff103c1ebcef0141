//! `advisory`: a lock on a number, kept by Postgres until the transaction ends.
//!
//! # Guarantee
//! `pg_advisory_xact_lock` lets one transaction in per key, across all replicas, and lets the next
//! one go when it commits, rolls back or loses its connection: there is no expiry to outlive.
//! Several keys are taken in sorted order. The key is 64 bits of a hash; two keys that fall on one
//! number wait for each other, which is slow and not wrong.
//!
//! The lock is a **statement of its own, before the read**. A statement sees what was committed
//! when it began: one that locks and reads at once has waited for the lock with an old picture in
//! hand, and reads the value from before it waited.
//!
//! # Breaks when
//! Somebody changes the row without asking for the lock: it protects a number, not the row. So it
//! holds among its own kind only. A paused holder stops everybody, until its session is ended.
//!
//! # Seen in the wild
//! Migrations (Rails, Flyway, sqlx itself), scheduled jobs, `with_advisory_lock`: wherever there is
//! a Postgres already and no Redis yet.

use sqlx::PgConnection;

use super::{BalanceReading, StockReading, read_then_update};
use crate::shop::{Error, UserId};

/// Waits for all keys, which are sorted, until each was free.
async fn lock(tx: &mut PgConnection, keys: &[String]) -> Result<(), Error> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended(key, 0)) from unnest($1::text[]) as key",
        keys,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Locks, then reads the items, sorted by sku.
pub(super) async fn read_stock(
    tx: &mut PgConnection,
    skus: &[String],
) -> Result<Vec<StockReading>, Error> {
    lock(tx, &skus.iter().map(|sku| format!("{{sku:{sku}}}")).collect::<Vec<_>>()).await?;
    read_then_update::read_stock(tx, skus).await
}

/// Locks, then reads an account.
pub(super) async fn read_balance(
    tx: &mut PgConnection,
    user: UserId,
) -> Result<Option<BalanceReading>, Error> {
    lock(tx, &[user.lock_key().to_string()]).await?;
    read_then_update::read_balance(tx, user).await
}
