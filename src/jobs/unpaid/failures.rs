//! Orders that could not be given back: how often it was tried, why it failed, when it is tried
//! again. In Postgres, because Redis may forget; parked in the end, never lost.

use std::time::Duration;

use rand::RngExt as _;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::shop::{Error, OrderId, Shop};

/// After so many attempts (a quarter of an hour) an order is parked until somebody has looked.
pub const MOST_ATTEMPTS: i32 = 10;
/// The pause after the first failure; it doubles with each, to …
const FIRST_PAUSE_S: f64 = 1.0;
/// … this at most.
const LONGEST_PAUSE_S: f64 = 300.0;

/// An order that could not be given back.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Failure {
    /// Which.
    pub order: OrderId,
    /// How often it was tried.
    pub attempts: i32,
    /// What went wrong the last time.
    pub cause: String,
    /// When that was.
    #[serde(with = "time::serde::rfc3339")]
    pub failed_at: OffsetDateTime,
    /// When it is tried again; none once it is parked.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_at: Option<OffsetDateTime>,
}

/// Records a failed expiry. Returns how long to leave the order alone; nothing once it is parked.
pub(super) async fn record(
    shop: &Shop,
    order: OrderId,
    cause: &str,
) -> Result<Option<Duration>, Error> {
    let jitter = rand::rng().random_range(0.75..1.25);
    let pause_s = sqlx::query_scalar!(
        r#"insert into unpaid_failures as f (order_id, attempts, cause, failed_at, next_at)
           values ($1, 1, $2, clock_timestamp(),
                   clock_timestamp() + make_interval(secs => $3::float8 * $6::float8))
           on conflict (order_id) do update
              set attempts = f.attempts + 1, cause = excluded.cause,
                  failed_at = excluded.failed_at,
                  next_at = case when f.attempts + 1 < $5 then
                      excluded.failed_at
                      + make_interval(secs => least($3::float8 * 2 ^ f.attempts, $4::float8) * $6::float8) end
           returning extract(epoch from next_at - failed_at)::float8"#,
        order.0,
        cause,
        FIRST_PAUSE_S,
        LONGEST_PAUSE_S,
        MOST_ATTEMPTS,
        jitter,
    )
    .fetch_one(&mut *shop.connection().await?)
    .await?;
    Ok(pause_s.map(|seconds| Duration::from_secs_f64(seconds.max(0.0))))
}

/// An order that should have been given back by now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overdue {
    pub(super) order: OrderId,
    since: OffsetDateTime,
}

/// Orders that are unpaid, have been due for so long, and are not to be left alone, behind that
/// one: the longest due first.
pub(super) async fn overdue(
    shop: &Shop,
    for_at_least: Duration,
    after: Option<Overdue>,
    most: i64,
) -> Result<Vec<Overdue>, Error> {
    let (since, order) =
        after.map_or((OffsetDateTime::UNIX_EPOCH, Uuid::nil()), |it| (it.since, it.order.0));
    // `now()` is the statement's beginning here, and an index can be asked for it.
    let rows = sqlx::query!(
        "select o.id, o.expires_at from orders o left join unpaid_failures f on f.order_id = o.id
          where o.status = 'pending' and o.expires_at <= now() - make_interval(secs => $1)
            and (o.expires_at, o.id) > ($2, $3)
            and (f.order_id is null or f.next_at <= now())
          order by o.expires_at, o.id limit $4",
        for_at_least.as_secs_f64(),
        since,
        order,
        most,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    let overdue = |(id, since)| Overdue { order: OrderId(id), since };
    Ok(rows.into_iter().map(|row| overdue((row.id, row.expires_at))).collect())
}

/// The unpaid orders whose expiry failed; parked ones first, then the latest.
pub async fn list(shop: &Shop, most: i64) -> Result<Vec<Failure>, Error> {
    let rows = sqlx::query!(
        "select f.order_id, f.attempts, f.cause, f.failed_at, f.next_at
           from unpaid_failures f join orders o on o.id = f.order_id and o.status = 'pending'
          order by f.next_at is null desc, f.failed_at desc limit $1",
        most,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    let failures = rows.into_iter().map(|row| Failure {
        order: OrderId(row.order_id),
        attempts: row.attempts,
        cause: row.cause,
        failed_at: row.failed_at,
        next_at: row.next_at,
    });
    Ok(failures.collect())
}

/// Retries a failed expiry now, as if for the first time. `false` when it is none of those.
pub async fn try_again(shop: &Shop, order: OrderId) -> Result<bool, Error> {
    let again = sqlx::query!(
        "update unpaid_failures set attempts = 1, next_at = clock_timestamp()
          where order_id = $1
            and exists (select from orders where id = $1 and status = 'pending')",
        order.0,
    )
    .execute(&mut *shop.connection().await?)
    .await?;
    Ok(again.rows_affected() == 1)
}

/// Forgets the failures of orders that went their way since, at most so many. How many.
pub(super) async fn forget_settled(shop: &Shop, most: i64) -> Result<u64, Error> {
    let settled: Vec<Uuid> = sqlx::query_scalar!(
        "select f.order_id from unpaid_failures f join orders o on o.id = f.order_id
          where o.status <> 'pending' limit $1",
        most,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    let gone = sqlx::query!("delete from unpaid_failures where order_id = any($1)", &settled)
        .execute(&mut *shop.connection().await?)
        .await?;
    Ok(gone.rows_affected())
}
