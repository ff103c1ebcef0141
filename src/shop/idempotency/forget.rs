//! What is forgotten of a key after a day, and what never is.
//!
//! The key of an order or of a top-up is a column of what it made, unique for ever: its row here
//! can go. The key of a payment is remembered nowhere else: its row stays without its answer, and
//! says that the key was used.
//!
//! Of two minds it may not be: what is forgotten is what [`super::look_up`] calls old, by the same
//! clock. A clock that was put back meanwhile finds a key without an answer, and calls it used.

use time::OffsetDateTime;

use super::{KEPT_HOURS, ORDERS_PATH, TOP_UPS_PATH};
use crate::db::Pool;
use crate::shop::Error;

/// Answers from before this moment may be forgotten.
///
/// # Errors
/// Postgres's.
pub async fn forget_before(pool: &Pool) -> Result<OffsetDateTime, Error> {
    let limit = sqlx::query_scalar!(
        r#"select clock_timestamp() - make_interval(hours => $1) as "limit!""#,
        i32::try_from(KEPT_HOURS).unwrap_or(i32::MAX),
    );
    Ok(limit.fetch_one(&mut *pool.acquire().await?).await?)
}

/// Forgets keys that what they made remembers, at most so many.
///
/// # Errors
/// Postgres's.
pub async fn forget(pool: &Pool, before: OffsetDateTime, most: i64) -> Result<u64, Error> {
    let forgotten = sqlx::query!(
        "delete from idempotency where ctid in (
            select ctid from idempotency
             where created_at < $1 and path = any($2) limit $3)",
        before,
        &[ORDERS_PATH.to_owned(), TOP_UPS_PATH.to_owned()],
        most,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(forgotten.rows_affected())
}

/// Forgets the answers of all other keys, at most so many; those from before `from` are forgotten.
///
/// # Errors
/// Postgres's.
pub async fn forget_answers(
    pool: &Pool,
    from: OffsetDateTime,
    before: OffsetDateTime,
    most: i64,
) -> Result<u64, Error> {
    let forgotten = sqlx::query!(
        "update idempotency set status = null, body = null where ctid in (
            select ctid from idempotency
             where created_at >= $1 and created_at < $2 and body is not null
               and path <> all($3) limit $4)",
        from,
        before,
        &[ORDERS_PATH.to_owned(), TOP_UPS_PATH.to_owned()],
        most,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(forgotten.rows_affected())
}
