//! Key records: the rows of `idempotency`. [`super::place`] and [`super::transition`] insert them
//! with the response; they do not change until they are purged.
//!
//! Each key has a lookup of its own (`lateral … limit 1`), which always uses the index. With a
//! plain join, the planner may scan the whole table if its statistics are outdated.

use std::collections::HashMap;

use futures_util::FutureExt as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::OrderId;
use crate::db::{self, Pool};
use crate::failure::{Error, Execution, Failure, Rejection, StoredResponse};
use crate::idempotency::{IdempotencyRequest, RETENTION_HOURS};

/// The result of a command whose key has a record: the stored response, or the reason why it can't
/// be sent.
pub type Replay = Result<Execution, Failure>;

/// Converts a violation of `idempotency_pkey` to [`Error::Conflict`]: a key record was inserted
/// since the read, so the whole statement was rolled back, and the next read finds the record.
pub(crate) fn duplicate_key_conflict(error: sqlx::Error) -> Error {
    if db::violates(&error, "idempotency_pkey") {
        Error::Conflict("a key record was inserted since the read".to_owned())
    } else {
        error.into()
    }
}

/// Inserts the record of a change that is a transaction of its own. Waits for another transaction
/// with the same key; [`Error::Conflict`] if that one commits.
pub(super) async fn insert(
    tx: &mut PgConnection,
    request: &IdempotencyRequest,
    response: &StoredResponse,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into idempotency (id, user_id, method, path, key, fingerprint, status, body)
         values ($1, $2, $3, $4, $5::text, $6, $7, $8)",
        request.id,
        request.user.0,
        request.operation.method(),
        &request.operation.path(),
        request.key.as_str(),
        request.fingerprint.as_slice(),
        i16::try_from(response.status).unwrap_or(200),
        response.body,
    )
    .execute(tx)
    .await
    .map_err(duplicate_key_conflict)?;
    Ok(())
}

/// Looks up the key records of several commands; `None` for a key without a record.
pub async fn look_up(
    db: &mut PgConnection,
    requests: &[&IdempotencyRequest],
) -> sqlx::Result<Vec<Option<Replay>>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }

    let ids: Vec<Uuid> = requests.iter().map(|request| request.id).collect();
    let rows = sqlx::query!(
        r#"select asked.place as "place!", found.fingerprint as "fingerprint!", found.status,
                  found.body, found.order_id,
                  found.created_at < clock_timestamp() - make_interval(hours => $2) as "old!"
             from unnest($1::uuid[]) with ordinality as asked (id, place),
                  lateral (select * from idempotency where id = asked.id limit 1) as found"#,
        &ids,
        i32::try_from(RETENTION_HOURS).unwrap_or(i32::MAX),
    )
    .fetch_all(db)
    .await?;

    let mut found = HashMap::new();
    for row in rows {
        let place = usize::try_from(row.place - 1).unwrap_or(usize::MAX);
        let Some(request) = requests.get(place) else { continue };

        let replay = match (row.status, row.body) {
            // The stored response would tell the client that this other payload was done.
            (Some(_), Some(_)) if !row.old && row.fingerprint != request.fingerprint => {
                Err(Rejection::KeyMismatch.into())
            }
            (Some(status), Some(body)) if !row.old => {
                let status = u16::try_from(status).unwrap_or(200);
                let response = StoredResponse { status, body };
                // A lost answer is read back: by this request, or by another one with its key?
                let is_own = request.new_order.is_some_and(|id| row.order_id == Some(id.0));
                Ok(Execution { response, replayed: !is_own, executed_by: None })
            }
            // An old response counts as purged: the response about a key must not depend on when
            // the purge job came by.
            _ => Err(Rejection::KeyUsed { order_id: row.order_id.map(OrderId) }.into()),
        };
        found.insert(place, replay);
    }

    Ok((0..requests.len()).map(|place| found.remove(&place)).collect())
}

pub async fn look_up_in(
    pool: &Pool,
    requests: Vec<IdempotencyRequest>,
) -> Result<Vec<Option<Replay>>, Error> {
    let reading = pool.read(move |db| {
        // The read may be repeated, on another connection.
        let requests = requests.clone();
        async move { look_up(db, &requests.iter().collect::<Vec<_>>()).await }.boxed()
    });
    Ok(reading.await?.0)
}
