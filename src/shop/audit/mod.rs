//! Audit: compares ledgers, orders and accounts with each other, and reports on Redis.
//!
//! Reads everything in one repeatable-read snapshot, so the audit of a shop under load is exact for
//! one moment. [`item`] (stock) and [`checks`] (all) define the figures. The `checker`
//! compares the ledgers with the responses of clients and their times.
//!
//! Guarantees nothing about lab items and lab accounts: these are counted apart. Tests:
//! `tests/it/audit.rs`.

pub mod checks;
pub mod conservation;
pub mod item;

use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use utoipa::ToSchema;

use super::{Error, Sku};
use crate::db::Pool;
use crate::ladder::ShopLocks;

pub use checks::AuditCheck;
pub use conservation::{StockConservation, conservation};
pub use item::{ItemAudit, LedgerFork};

/// Result of all checks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AuditReport {
    /// True if all checks hold.
    pub ok: bool,
    /// The checks.
    pub checks: Vec<AuditCheck>,
    /// Notes that do not affect `ok`: lab items, Redis.
    pub notes: Vec<String>,
}

pub async fn check_all(pool: &Pool, locks: Option<&ShopLocks>) -> Result<AuditReport, Error> {
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    begin_snapshot(&mut tx).await?;
    let checks = checks::run(&mut tx).await?;
    let mut notes = checks::notes(&mut tx).await?;
    tx.rollback().await?;
    drop(connection);
    if let Some(locks) = locks {
        notes.push(redis_note(locks).await);
    }
    Ok(AuditReport { ok: checks.iter().all(|check| check.ok), checks, notes })
}

/// Audits one item; `None` if it does not exist.
pub async fn check_item(pool: &Pool, sku: &Sku) -> Result<Option<ItemAudit>, Error> {
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    begin_snapshot(&mut tx).await?;
    let audit = item::check(&mut tx, sku).await?;
    tx.rollback().await?;
    Ok(audit)
}

/// Makes the transaction a read-only snapshot, with a timeout for long ledgers.
async fn begin_snapshot(tx: &mut PgConnection) -> Result<(), Error> {
    sqlx::raw_sql("set transaction isolation level repeatable read, read only")
        .execute(&mut *tx)
        .await?;
    sqlx::raw_sql("set local statement_timeout = '60s'").execute(tx).await?;
    Ok(())
}

/// Returns a note on Redis, which never fails the audit: it stores nothing that matters.
async fn redis_note(locks: &ShopLocks) -> String {
    match locks.held_locks().await {
        Ok(held) => {
            let forever = held.iter().filter(|lock| lock.remaining_ms.is_none()).count();
            format!("Redis: {} locks held, {forever} of them without an expiry", held.len())
        }
        Err(error) => format!("Redis was left out: {error}"),
    }
}
