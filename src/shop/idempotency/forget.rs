//! What is forgotten of a key after a day, and what never is.
//!
//! The key of an order or of a top-up is a column of what it made, unique for ever: its row here
//! can go. The key of a payment is remembered nowhere else: its row stays without its answer, and
//! says that the key was used.
//!
//! Of two minds it may not be: what is forgotten is what [`super::look_up`] calls old, by the same
//! clock. A clock that was put back meanwhile finds a key without an answer, and calls it used.
//!
//! The rows of payments stay for ever, so no statement here may look for old rows in all there are.
//! Each is given a stretch of the table's blocks and reads those, by a TID range scan: what it
//! costs is known beforehand, and needs no index that every order would pay for. Migration 0007
//! meant rows to lie in the order of their age, for a block range index to find the old ones. That
//! holds until the first are deleted: young rows then go where old ones lay, and a range's bounds
//! never shrink. Migration 0013 drops it. What breaks the bound: an index on the age, which the
//! planner may then prefer to the stretch.

use std::ops::Range;

use time::OffsetDateTime;

use super::{KEPT_HOURS, ORDERS_PATH, TOP_UPS_PATH};
use crate::db::Pool;
use crate::shop::Error;

/// How far forgetting goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// How many blocks the keys lie in.
    pub blocks: i64,
    /// Answers from before this moment may be forgotten.
    pub before: OffsetDateTime,
}

/// Asks how far it goes now.
///
/// # Errors
/// Postgres's.
pub async fn reach(pool: &Pool) -> Result<Reach, Error> {
    let reach = sqlx::query_as!(
        Reach,
        r#"select pg_relation_size('idempotency') / current_setting('block_size')::bigint
                      as "blocks!",
                  clock_timestamp() - make_interval(hours => $1) as "before!""#,
        i32::try_from(KEPT_HOURS).unwrap_or(i32::MAX),
    );
    Ok(reach.fetch_one(&mut *pool.acquire().await?).await?)
}

/// The `ctid` before the first row of a block.
fn start_of(block: i64) -> String {
    format!("({block},0)")
}

/// Forgets keys in these blocks that what they made remembers.
///
/// # Errors
/// Postgres's.
pub async fn forget(pool: &Pool, blocks: Range<i64>, before: OffsetDateTime) -> Result<u64, Error> {
    let forgotten = sqlx::query!(
        "delete from idempotency
          where ctid >= $1::text::tid and ctid < $2::text::tid
            and created_at < $3 and path = any($4)",
        start_of(blocks.start),
        start_of(blocks.end),
        before,
        &[ORDERS_PATH.to_owned(), TOP_UPS_PATH.to_owned()],
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(forgotten.rows_affected())
}

/// Forgets the answers of all other keys in these blocks.
///
/// # Errors
/// Postgres's.
pub async fn forget_answers(
    pool: &Pool,
    blocks: Range<i64>,
    before: OffsetDateTime,
) -> Result<u64, Error> {
    let forgotten = sqlx::query!(
        "update idempotency set status = null, body = null
          where ctid >= $1::text::tid and ctid < $2::text::tid
            and created_at < $3 and body is not null and path <> all($4)",
        start_of(blocks.start),
        start_of(blocks.end),
        before,
        &[ORDERS_PATH.to_owned(), TOP_UPS_PATH.to_owned()],
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(forgotten.rows_affected())
}
