//! Resolves an unknown outcome: a write was sent, and its result did not arrive.
//!
//! To look its keys up is not enough: bytes still in flight may reach Postgres later, and commit.
//! So the guard is invalidated first: the version of one row that the write demanded is raised.
//! That waits for a write that is running, and one that arrives later matches nothing. A
//! transaction has locked that row, so it has ended by then. Only then the keys are looked up, in a
//! new statement.
//! `tests/model/writes.rs` walks through all orders of these events.

use std::time::Duration;

use tokio::time::timeout;

use crate::shop::Shop;
use crate::shop::failure::Error;
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::guard::GuardedRow;
use crate::shop::store::key_records::{self, Replay};

/// Together with the write, shorter than a request may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns what each key's record says; a key without one was not executed, and never will be by
/// the write in question.
///
/// # Errors
/// Postgres did not respond: the outcome stays unknown.
pub(super) async fn resolve(
    shop: &Shop,
    row: &GuardedRow,
    keys: &[&IdempotencyRequest],
) -> Result<Vec<Option<Replay>>, Error> {
    let mut connection = shop.connection().await?;
    let resolved = async {
        row.invalidate(&mut connection).await?;
        key_records::look_up(&mut connection, keys).await
    };
    match timeout(RESOLVE_TIMEOUT, resolved).await {
        Ok(resolved) => resolved,
        Err(_) => {
            drop(connection.detach());
            Err(Error::silent_postgres())
        }
    }
}
