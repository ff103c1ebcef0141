//! Purges key records after [`RETENTION_HOURS`]: those of orders lose their response and stay, all
//! others are deleted.
//!
//! The records of orders stay forever, so no statement may scan the whole table. Each statement
//! reads a range of blocks by a TID range scan, which has a known cost and needs no index that
//! every order would maintain. An index on the age would break that bound, because the planner
//! might prefer it.

use std::ops::Range;

use time::OffsetDateTime;

use crate::db::Pool;
use crate::failure::Error;
use crate::idempotency::{ORDERS_PATH, RETENTION_HOURS};

/// Returns the number of the table's blocks, and the time before which responses may be purged.
pub async fn purge_bounds(pool: &Pool) -> Result<(i64, OffsetDateTime), Error> {
    // The time is Postgres's, whose clock also wrote the age of each record.
    let bounds = sqlx::query!(
        r#"select pg_relation_size('idempotency') / current_setting('block_size')::bigint
                      as "blocks!",
                  clock_timestamp() - make_interval(hours => $1) as "before!""#,
        i32::try_from(RETENTION_HOURS).unwrap_or(i32::MAX),
    )
    .fetch_one(&mut *pool.acquire().await?)
    .await?;

    Ok((bounds.blocks, bounds.before))
}

/// Returns the first TID of a block, as text: the driver has no type for it.
fn start_of(block: i64) -> String {
    format!("({block},0)")
}

/// Deletes the old key records in `blocks`, except those of orders. Returns their number.
pub async fn purge_records(
    pool: &Pool,
    blocks: Range<i64>,
    before: OffsetDateTime,
) -> Result<u64, Error> {
    // Not those of orders: a deleted key would order a second time.
    let purged = sqlx::query!(
        "delete from idempotency
          where ctid >= $1::text::tid and ctid < $2::text::tid
            and created_at < $3 and path <> $4",
        start_of(blocks.start),
        start_of(blocks.end),
        before,
        ORDERS_PATH,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(purged.rows_affected())
}

/// Removes the responses of the old key records of orders in `blocks`. Returns their number.
pub async fn purge_bodies(
    pool: &Pool,
    blocks: Range<i64>,
    before: OffsetDateTime,
) -> Result<u64, Error> {
    // Those without a response stay untouched: an update would write each of them anew at every
    // scan.
    let purged = sqlx::query!(
        "update idempotency set status = null, body = null
          where ctid >= $1::text::tid and ctid < $2::text::tid
            and created_at < $3 and body is not null and path = $4",
        start_of(blocks.start),
        start_of(blocks.end),
        before,
        ORDERS_PATH,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(purged.rows_affected())
}
