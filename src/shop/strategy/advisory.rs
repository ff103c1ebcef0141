//! `advisory`: a lock on a number, held by Postgres until the transaction ends.
//!
//! # Guarantee
//! `pg_advisory_xact_lock` admits one transaction per key, across all replicas, and the next one
//! when it commits, rolls back or loses its connection: there is no expiry to outlive. Several keys
//! are locked in sorted order. The key is 64 bits of a hash; two keys with the same number wait for
//! each other, which is slow and not wrong.
//!
//! The lock is a **statement of its own, before the read**. A statement sees what was committed
//! when it began: one that locks and reads at once has waited for the lock with an old snapshot,
//! and reads the value from before it waited.
//!
//! # Breaks when
//! Another program changes the row without asking for the lock: it protects a number, not the row.
//! So it holds among its own kind only. A paused holder blocks all others, until its session is
//! terminated.
//!
//! # Seen in the wild
//! Migrations (Rails, Flyway, sqlx itself), scheduled jobs, `with_advisory_lock`: wherever there is
//! a Postgres already and no Redis yet.

use sqlx::PgConnection;

use super::{Guarantee, Read, Strategy, none};
use crate::lock::LockKey;
use crate::shop::failure::Error;

/// `pg_advisory_xact_lock`, then a plain read.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "advisory",
    read: Read::Advisory,
    guarantee: Guarantee::Among,
    about: "pg_advisory_xact_lock, in a statement of its own before the read",
    source: file!(),
    code: include_str!("advisory.rs"),
    ..none::STRATEGY
};

/// Waits for all keys, which are sorted, until each was free.
pub(in crate::shop) async fn lock(tx: &mut PgConnection, keys: &[LockKey]) -> Result<(), Error> {
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended(key, 0)) from unnest($1::text[]) as key",
        &names,
    )
    .execute(tx)
    .await?;
    Ok(())
}
