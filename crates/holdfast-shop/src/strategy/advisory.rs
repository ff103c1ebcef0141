//! `advisory`: a lock on a number, held by Postgres until the transaction ends.
//!
//! # Guarantee
//! `pg_advisory_xact_lock` admits one transaction per key, across all replicas, until it commits,
//! rolls back or loses its connection; there is no expiry. Keys are locked in sorted order. A key
//! is a 64-bit hash; keys with the same hash wait for each other, which is slow but correct. The
//! lock is a **statement of its own, before the read**: a statement sees what was committed when it
//! began, so a combined one would read the value from before its wait.
//!
//! # Breaks when
//! Another program changes the row without this lock, which protects a number and not the row. A
//! paused holder blocks all others until its session is terminated.
//!
//! # Seen in the wild
//! Migrations (Rails, Flyway, sqlx), scheduled jobs, `with_advisory_lock`: no Redis is needed.

use holdfast_lock::LockKey;
use sqlx::PgConnection;

use super::{Guarantee, ReadMethod, Strategy, none};
use crate::failure::Error;

pub(super) const STRATEGY: Strategy = Strategy {
    name: "advisory",
    read: ReadMethod::Advisory,
    guarantee: Guarantee::AmongItself,
    source: file!(),
    code: include_str!("advisory.rs"),
    ..none::STRATEGY
};

pub(crate) async fn lock(tx: &mut PgConnection, keys: &[LockKey]) -> Result<(), Error> {
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended(key, 0)) from unnest($1::text[]) as key",
        &names,
    )
    .execute(tx)
    .await?;
    Ok(())
}
