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

use super::batch::{Entry, EntryResult, LockState, Pending};
use crate::shop::Shop;
use crate::shop::failure::{Error, Executed, Failure};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::guard::GuardedRow;
use crate::shop::store::key_records::{self, Replay};

/// Together with the write, shorter than a request may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns what each key's record says; a key without one was not executed, and never will be by
/// the write in question.
async fn resolve(
    shop: &Shop,
    row: &GuardedRow,
    keys: &[&IdempotencyRequest],
) -> Result<Vec<Option<Replay>>, Error> {
    let mut connection = shop.connection().await?;
    let resolved = async {
        row.invalidate(&mut connection).await?;
        Ok(key_records::look_up(&mut connection, keys).await?)
    };
    match timeout(RESOLVE_TIMEOUT, resolved).await {
        Ok(resolved) => resolved,
        Err(_) => {
            drop(connection.detach());
            Err(Error::silent_postgres())
        }
    }
}

/// Finds out what became of a write. Who was rejected for want of what the others took was rejected
/// rightly if they have it, and otherwise gets the error.
pub(super) async fn resolve_outcome(
    shop: &Shop,
    entries: &[Entry<'_>],
    error: Error,
    mut pending: Pending,
) -> (Vec<EntryResult>, LockState) {
    tracing::warn!(%error, commands = pending.written.len(), "the outcome of a write is unknown");
    let keys: Vec<&IdempotencyRequest> =
        pending.written.iter().map(|at| entries[*at].command.idempotency()).collect();
    let resolved = match &pending.row {
        Some(row) => resolve(shop, row, &keys).await,
        None => Err(Error::Bug("a write changed no row".to_owned())),
    };
    let Ok(replays) = resolved else {
        let cause = error.to_string();
        let unknown = Error::Unavailable { what: "Postgres", cause, outcome_unknown: true };
        for result in &mut pending.results {
            if !matches!(result, Ok(Executed { replayed: true, .. })) {
                *result = Err(unknown.clone().into());
            }
        }
        return (pending.results, LockState::MayStillWrite);
    };
    let written = replays.iter().all(Option::is_some);
    for (at, replay) in pending.written.iter().zip(replays) {
        pending.results[*at] = match replay {
            Some(Ok(response)) => Ok(Executed::now(response)),
            Some(Err(rejection)) => Err(rejection.into()),
            None => Err(error.clone().into()),
        };
    }
    for result in &mut pending.results {
        if !written && matches!(result, Err(Failure::Rejected(_))) {
            *result = Err(error.clone().into());
        }
    }
    (pending.results, LockState::Held)
}
