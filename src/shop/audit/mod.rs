//! The proof: ledgers, orders, accounts and Redis held against each other.
//!
//! Everything is read in one repeatable-read snapshot, so the audit of a shop under load is exact
//! for one moment. What is counted and how is defined in [`item`] (stock) and [`checks`] (all).
//! Whether the books agree with what clients were answered, and when, is asked in [`history`].
//!
//! Does not guarantee anything about lab items and lab accounts: they are counted apart.

pub mod checks;
pub mod conservation;
pub mod history;
pub mod item;

use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use utoipa::ToSchema;

use super::{Error, Sku};
use crate::db::Pool;
use crate::lock::Locks;

pub use checks::Check;
pub use conservation::{Conservation, conservation};
pub use item::{Fork, ItemAudit};

/// Every check.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Audit {
    /// Whether all hold.
    pub ok: bool,
    /// One by one.
    pub checks: Vec<Check>,
    /// What is worth knowing and makes nothing fail: lab items, Redis.
    pub notes: Vec<String>,
}

pub async fn everything(pool: &Pool, locks: Option<&Locks>) -> Result<Audit, Error> {
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    snapshot(&mut tx).await?;
    let checks = checks::all(&mut tx).await?;
    let mut notes = checks::notes(&mut tx).await?;
    tx.rollback().await?;
    drop(connection);
    if let Some(locks) = locks {
        notes.push(redis_note(locks).await);
    }
    Ok(Audit { ok: checks.iter().all(|check| check.ok), checks, notes })
}

/// Checks one item; `None` when there is none of that sku.
pub async fn of_item(pool: &Pool, sku: &Sku) -> Result<Option<ItemAudit>, Error> {
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    snapshot(&mut tx).await?;
    let audit = item::of(&mut tx, sku).await?;
    tx.rollback().await?;
    Ok(audit)
}

/// One moment for all statements that follow, and time enough for a long ledger.
async fn snapshot(tx: &mut PgConnection) -> Result<(), Error> {
    sqlx::raw_sql("set transaction isolation level repeatable read, read only")
        .execute(&mut *tx)
        .await?;
    sqlx::raw_sql("set local statement_timeout = '60s'").execute(tx).await?;
    Ok(())
}

/// Redis never makes the audit fail: nothing that matters lives there.
async fn redis_note(locks: &Locks) -> String {
    match locks.held().await {
        Ok(held) => {
            let forever = held.iter().filter(|lock| lock.remaining_ms.is_none()).count();
            format!("Redis: {} locks held, {forever} of them without an expiry", held.len())
        }
        Err(error) => format!("Redis was left out: {error}"),
    }
}
