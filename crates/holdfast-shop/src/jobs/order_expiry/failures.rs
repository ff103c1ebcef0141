//! Failed expiries of orders, which are parked in the end, never lost.

use rand::RngExt as _;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::db::Pool;
use crate::{Error, OrderId, Shop};

/// Attempts (about nine minutes) after which an order is parked until an admin acts.
pub const MAX_ATTEMPTS: i32 = 10;
/// Pause after the first failure, in seconds; it doubles with each one, up to the longest.
const MIN_BACKOFF_S: f64 = 1.0;
const MAX_BACKOFF_S: f64 = 300.0;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ExpiryFailure {
    pub order: OrderId,
    pub attempts: i32,
    /// Error of the last attempt.
    pub cause: String,
    #[serde(with = "time::serde::rfc3339")]
    pub failed_at: OffsetDateTime,
    /// Time of the next attempt; none once it is parked.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_at: Option<OffsetDateTime>,
}

/// Records a failed expiry. Returns whether it is parked now.
pub(super) async fn record(shop: &Shop, order: OrderId, cause: &str) -> Result<bool, Error> {
    // A common cause fails many orders at a time: without jitter they would come back together.
    let jitter = rand::rng().random_range(0.75..1.25);

    let is_parked = sqlx::query_scalar!(
        r#"insert into unpaid_failures as f (order_id, attempts, cause, failed_at, next_at)
           values ($1, 1, $2, clock_timestamp(),
                   clock_timestamp() + make_interval(secs => $3::float8 * $6::float8))
           on conflict (order_id) do update
              set attempts = f.attempts + 1, cause = excluded.cause,
                  failed_at = excluded.failed_at,
                  next_at = case when f.attempts + 1 < $5 then
                      excluded.failed_at
                      + make_interval(secs => least($3::float8 * 2 ^ f.attempts, $4::float8) * $6::float8) end
           returning next_at is null as "is_parked!""#,
        order.0,
        cause,
        MIN_BACKOFF_S,
        MAX_BACKOFF_S,
        MAX_ATTEMPTS,
        jitter,
    )
    .fetch_one(&mut *shop.connection().await?)
    .await?;

    Ok(is_parked)
}

/// Returns the failures of unpaid orders; parked ones first, then the latest.
pub async fn list(shop: &Shop, max: i64) -> Result<Vec<ExpiryFailure>, Error> {
    let failures = sqlx::query_as!(
        ExpiryFailure,
        r#"select f.order_id as "order: OrderId", f.attempts, f.cause, f.failed_at, f.next_at
             from unpaid_failures f join orders o on o.id = f.order_id and o.status = 'pending'
            order by f.next_at is null desc, f.failed_at desc limit $1"#,
        max,
    );
    Ok(failures.fetch_all(&mut *shop.connection().await?).await?)
}

/// Retries a failed expiry now and resets its attempts. Returns `false` if there is none to retry.
pub async fn try_again(shop: &Shop, order: OrderId) -> Result<bool, Error> {
    // At least one, as of every failure: the row stays until its order is settled.
    let updated = sqlx::query!(
        "update unpaid_failures set attempts = 1, next_at = clock_timestamp()
          where order_id = $1
            and exists (select from orders where id = $1 and status = 'pending')",
        order.0,
    )
    .execute(&mut *shop.connection().await?)
    .await?;
    Ok(updated.rows_affected() == 1)
}

/// Deletes failures of orders that are no longer pending, at most `max`; returns their number.
pub(in crate::jobs) async fn delete_obsolete(pool: &Pool, max: i64) -> Result<u64, Error> {
    let deleted = sqlx::query!(
        "delete from unpaid_failures where order_id in (
             select f.order_id from unpaid_failures f join orders o on o.id = f.order_id
              where o.status <> 'pending' limit $1)",
        max,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(deleted.rows_affected())
}
