//! Resolves an unknown outcome: a write was sent, and its result did not arrive.
//!
//! A lookup of the keys alone does not resolve it, because bytes in flight may reach Postgres later
//! and commit. So the guard is invalidated first: the version of one row that the write requires is
//! raised. This waits for a running write, and a later one matches no row. An explicit transaction
//! has locked that row, so it has ended by then. Finally, a separate statement looks up the keys.
//!
//! Tests: `tests/model/unknown.rs` explores all interleavings.

use std::time::Duration;

use tokio::time::timeout;

use crate::engine::batch::entries::Batch;
use crate::engine::batch::entry::EntryResult;
use crate::engine::lease::locks::LockState;
use crate::failure::{Component, Error, Execution, Failure};
use crate::store::BatchWrite;
use crate::store::key_records::{self, Replay};

/// Timeout of a resolution. Write and resolution together take less than a request may.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the replay of each command's key, and whether the write can't arrive any more: a key
/// without a record is then never executed by it.
async fn resolve(
    batch: Batch<'_>,
    write: &BatchWrite,
) -> Result<(Vec<Option<Replay>>, bool), Error> {
    let mut connection = batch.shop.pool.acquire().await?;
    let keys: Vec<_> = write.commands.iter().map(|command| &command.idempotency).collect();
    let resolved = async {
        // First: a look-up before it could miss a write that arrives afterwards.
        let is_final = match batch.data_path() {
            Some(path) => path.invalidate(&mut connection, write).await?,
            None => write.rows.invalidate(&mut connection).await.map(|()| true)?,
        };
        Ok((key_records::look_up(&mut connection, &keys).await?, is_final))
    };

    match timeout(RESOLVE_TIMEOUT, resolved).await {
        Ok(resolved) => resolved,
        Err(_) => {
            // A statement is in flight on it.
            connection.close_on_drop(true);
            Err(Error::postgres_timeout())
        }
    }
}

/// Resolves the outcome of a write, and returns the results; `results` are those of a write that is
/// done. A rejection stands if all changes are written, because it was decided on the state that
/// they left; otherwise it becomes `error`.
pub async fn resolve_outcome(
    batch: Batch<'_>,
    error: Error,
    write: &BatchWrite,
    mut results: Vec<EntryResult>,
) -> (Vec<EntryResult>, LockState) {
    tracing::warn!(%error, commands = write.commands.len(), "the outcome of a write is unknown");
    let (replays, is_final) = match resolve(batch, write).await {
        Ok(resolved) => resolved,
        Err(outage) => {
            // A late write whose guard is a version matches no row once another holder has written,
            // and that holder's write matches none after it.
            let state = if write.rows.require_versions() {
                LockState::HeldInOutage(outage)
            } else {
                LockState::LeaveToExpire(outage)
            };
            return (unknown_outcome(&error, results), state);
        }
    };

    let written = replays.iter().all(Option::is_some);
    for (command, replay) in write.commands.iter().zip(replays) {
        results[command.position] = match replay {
            // What was written now, or else a duplicate's under a lease of another replica.
            Some(replay) => replay.map(|executed| {
                let replayed = executed.response != command.response;
                Execution { replayed, ..executed }
            }),
            // It may still arrive.
            None if !is_final => return (unknown_outcome(&error, results), LockState::Held),
            None => Err(error.clone().into()),
        };
    }

    for result in &mut results {
        if !written && matches!(result, Err(Failure::Rejected(_))) {
            *result = Err(error.clone().into());
        }
    }
    (results, LockState::Held)
}

fn unknown_outcome(error: &Error, mut results: Vec<EntryResult>) -> Vec<EntryResult> {
    let cause = error.to_string();
    let unknown = Error::Unavailable { what: Component::Postgres, cause, outcome_unknown: true };
    for result in &mut results {
        // A replay was read before the write, which cannot change it.
        if !matches!(result, Ok(Execution { replayed: true, .. })) {
            *result = Err(unknown.clone().into());
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::StoredResponse;

    #[test]
    fn replay_stays_known_in_a_batch_that_is_not() {
        let executed = Execution::now(StoredResponse { status: 201, body: b"{}".to_vec() });
        let replay = Execution { replayed: true, ..executed.clone() };
        let results = vec![Ok(executed), Ok(replay.clone())];

        let results = unknown_outcome(&Error::postgres_timeout(), results);
        let [Err(Failure::Error(error)), Ok(known)] = &results[..] else { panic!("{results:?}") };
        assert!(matches!(error, Error::Unavailable { outcome_unknown: true, .. }), "{error:?}");
        assert_eq!(known, &replay);
    }
}
