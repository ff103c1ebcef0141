//! Changes by admins that touch no existing row of stock or money: a new item, or rights of a user.
//! Each is a transaction of its own, with an entry of the admin log and the key record.
//!
//! Settings of an item are changed by a command, because orders read them ([`super::transition`]).

use sqlx::PgConnection;
use uuid::Uuid;

use super::key_records;
use crate::UserId;
use crate::db::{self, Pool};
use crate::failure::{Error, Execution, Failure, StoredResponse};
use crate::idempotency::IdempotencyRequest;
use crate::model::{AdminAction, AdminEntry};

/// Executes a change, at most once per idempotency key. A repetition gets the stored response.
///
/// # Cancel safety
/// Dropping the future before the commit changes nothing.
pub async fn change_once(
    pool: &Pool,
    request: &IdempotencyRequest,
    request_id: Uuid,
    change: impl AsyncFnOnce(&mut PgConnection) -> Result<(StoredResponse, AdminEntry), Failure>,
) -> Result<Execution, Failure> {
    if let Some(replayed) = replay(pool, request).await {
        return replayed;
    }

    let mut tx = pool.begin().await?;
    let written = async {
        let (response, entry) = change(&mut tx).await?;
        insert_entry(&mut tx, request.user, request_id, &entry).await?;
        // Last, as every write locks: rows before key records. A repetition at the same time waits
        // here for this transaction.
        key_records::insert(&mut tx, request, &response).await?;
        Ok(response)
    };
    let failure = match written.await {
        Ok(response) => match tx.commit().await {
            Ok(()) => return Ok(Execution::now(response)),
            Err(error) => return Err(unknown_outcome(error).into()),
        },
        Err(failure) => failure,
    };

    if matches!(&failure, Failure::Error(error) if error.is_outage()) {
        // Neither a rollback nor a look-up would be answered.
        return Err(failure);
    }
    tx.rollback().await?;
    // The repetition of a change that was committed since fails: the item exists, for example.
    match (replay(pool, request).await, failure) {
        (Some(replayed), _) => replayed,
        (None, Failure::Error(Error::Conflict(cause))) => {
            Err(Error::Conflicts { attempts: 1, cause }.into())
        }
        (None, failure) => Err(failure),
    }
}

async fn replay(pool: &Pool, request: &IdempotencyRequest) -> Option<key_records::Replay> {
    if request.is_generated {
        // No other request has the key.
        return None;
    }
    match key_records::look_up_in(pool, vec![request.clone()]).await {
        Ok(found) => found.into_iter().next().flatten(),
        Err(error) => Some(Err(error.into())),
    }
}

async fn insert_entry(
    tx: &mut PgConnection,
    admin: UserId,
    request_id: Uuid,
    entry: &AdminEntry,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into admin_log (admin, action, subject, before, after, request_id)
         values ($1, $2::text, $3, $4, $5, $6)",
        admin.0,
        entry.action as AdminAction,
        entry.subject,
        entry.before,
        entry.after,
        request_id,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Postgres may have committed, if it did not say that it rolled back.
fn unknown_outcome(error: sqlx::Error) -> Error {
    match Error::from((db::classify(&error), error)) {
        Error::Unavailable { what, cause, .. } => {
            Error::Unavailable { what, cause, outcome_unknown: true }
        }
        error => error,
    }
}
