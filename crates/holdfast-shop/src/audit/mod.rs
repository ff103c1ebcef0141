//! Audit: compares ledgers, orders and accounts with each other, and reports on Redis.
//!
//! Reads everything in one repeatable-read snapshot, so the audit of a shop under load is exact for
//! one moment. Guarantees nothing about lab items and lab accounts: these are counted apart.
//! Tests: `tests/it/audit.rs`, `tests/it/reports.rs`.

pub mod audits;
pub mod checks;
pub mod conservation;
pub mod item;
pub mod nicknames;
pub mod table_ledger;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{Component, Error, Sku, with_timeout};
use crate::db::{Pool, Transaction};
use crate::locks::ShopLocks;
use holdfast_base::messages::{Message, message};

use checks::STATEMENT_TIMEOUT;

pub use audits::{AuditStatus, Audits};
pub use checks::{AuditCheck, AuditProgress};
pub use conservation::StockConservation;
pub use item::{ItemAudit, ItemSummary, LedgerFork, forks_near, summary};

/// Timeout of a whole audit. It also ends one that waits for a Postgres that does not respond.
pub const AUDIT_TIMEOUT: Duration = Duration::from_mins(10);

/// Result of all checks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AuditReport {
    /// True if all checks hold.
    pub ok: bool,
    pub checks: Vec<AuditCheck>,
    /// Notes that do not affect `ok`: lab items, Redis.
    pub notes: Vec<String>,
    /// The notes as messages, for pages in other languages.
    #[serde(skip)]
    #[schema(ignore)]
    pub noted: Vec<Message>,
    /// The time of the snapshot.
    #[serde(skip)]
    #[schema(ignore)]
    pub checked_at: Option<OffsetDateTime>,
}

/// Executes all checks; calls `report` before each.
///
/// # Errors
/// If Postgres does not respond, or an audit takes longer than ten minutes. A Redis that does not
/// respond is a note of the report.
pub async fn check_all(
    pool: &Pool,
    locks: Option<&ShopLocks>,
    report: impl FnMut(AuditProgress),
) -> Result<AuditReport, Error> {
    let audit = timeout(AUDIT_TIMEOUT, check_in_snapshot(pool, report)).await;
    let (checks, (mut noted, checked_at)) = audit.unwrap_or_else(|_| {
        let cause = format!("the audit took longer than {} s", AUDIT_TIMEOUT.as_secs());
        Err(Error::Unavailable { what: Component::Postgres, cause, outcome_unknown: false })
    })?;

    // After the snapshot's end: a slow Redis keeps no transaction open.
    if let Some(locks) = locks {
        noted.push(redis_note(locks).await);
    }

    let notes = noted.iter().map(Message::english).collect();
    let (ok, checked_at) = (checks.iter().all(|check| check.ok), Some(checked_at));
    Ok(AuditReport { ok, checks, notes, noted, checked_at })
}

async fn check_in_snapshot(
    pool: &Pool,
    report: impl FnMut(AuditProgress),
) -> Result<(Vec<AuditCheck>, (Vec<Message>, OffsetDateTime)), Error> {
    let mut tx = begin_snapshot(pool, STATEMENT_TIMEOUT).await?;
    // Compiling a statement takes longer than most steps.
    sqlx::raw_sql("set local jit = off").execute(&mut *tx).await?;

    let checks = checks::run(&mut tx, report).await?;
    let notes = checks::notes(&mut tx).await?;
    tx.rollback().await?;
    Ok((checks, notes))
}

pub async fn check_item(pool: &Pool, sku: &Sku) -> Result<Option<ItemAudit>, Error> {
    check_item_within(pool, sku, STATEMENT_TIMEOUT).await
}

async fn check_item_within(
    pool: &Pool,
    sku: &Sku,
    statement_timeout: Duration,
) -> Result<Option<ItemAudit>, Error> {
    let audit = async {
        let mut tx = begin_snapshot(pool, statement_timeout).await?;
        let audit = item::check(&mut tx, sku).await?;
        tx.rollback().await?;
        Ok(audit)
    };
    // It has two statements.
    with_timeout(2 * statement_timeout, audit).await
}

/// Begins a transaction that reads a snapshot. A statement may wait for a lock as long as it may
/// run. On drop the connection is closed, which ends a statement that is under way.
async fn begin_snapshot(pool: &Pool, statement_timeout: Duration) -> Result<Transaction, Error> {
    let mut tx = pool.begin().await?;
    sqlx::raw_sql("set transaction isolation level repeatable read, read only")
        .execute(&mut *tx)
        .await?;
    let set = "select set_config(name, $1, true)
                 from unnest('{statement_timeout,lock_timeout}'::text[]) as name";
    let timeout = format!("{}ms", statement_timeout.as_millis());
    sqlx::query(set).bind(timeout).execute(&mut *tx).await?;
    Ok(tx)
}

async fn redis_note(locks: &ShopLocks) -> Message {
    match locks.held_locks().await {
        Ok(held) => {
            let forever = held.iter().filter(|lock| lock.remaining_ms.is_none()).count();
            message!("admin-audit-note-locks", held = held.len(), forever)
        }
        Err(error) => message!("admin-audit-note-without-redis", error),
    }
}
