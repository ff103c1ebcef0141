//! Races in Postgres: the replica that runs a race writes it, every replica reads it.
//!
//! The newest [`MAX_KEPT_RACES`] races are kept. Each race deletes the two oldest ones beyond that,
//! with their items and orders, as soon as these orders have expired.

use uuid::Uuid;

use super::execute::{MAX_QUEUED, MAX_RUNNING, TOTAL_TIMEOUT};
use super::model::{Race, RaceRequest, RaceResult, RaceState};
use crate::db::Pool;
use crate::lab::store::{json, read};
use crate::shop::store::purge_lab_item;
use crate::shop::{Error, Sku};

pub const MAX_KEPT_RACES: i64 = 2_000;
/// Races deleted per race.
const PRUNED_PER_RACE: i64 = 2;
/// Seconds after which a race without a result counts as failed: longer than a full queue takes.
const ABANDONED_AFTER_S: f64 =
    TOTAL_TIMEOUT.as_secs() as f64 * (MAX_QUEUED / MAX_RUNNING + 2) as f64;

pub(super) async fn insert(
    pool: &Pool,
    id: Uuid,
    replica: &str,
    request: &RaceRequest,
    state: RaceState,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into races (id, replica, request, state) values ($1, $2, $3, $4)",
        id,
        replica,
        json(request)?,
        state as RaceState,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Records that a race begins to sell this item.
pub(super) async fn begin(pool: &Pool, id: Uuid, sku: &Sku) -> Result<(), Error> {
    sqlx::query!("update races set state = 'running', sku = $2 where id = $1", id, sku.as_str())
        .execute(&mut *pool.acquire().await?)
        .await?;
    Ok(())
}

/// Stores the result; without one, the race has failed.
pub(super) async fn finish(
    pool: &Pool,
    id: Uuid,
    result: Option<&RaceResult>,
) -> Result<(), Error> {
    let state = if result.is_some() { RaceState::Done } else { RaceState::Failed };
    sqlx::query!(
        "update races set state = $2, result = $3 where id = $1",
        id,
        state as RaceState,
        result.map(json).transpose()?,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

pub async fn find(pool: &Pool, id: Uuid) -> Result<Option<Race>, Error> {
    let row = sqlx::query!(
        r#"select request, result, state as "state: RaceState",
                  created_at < now() - make_interval(secs => $2) as "is_old!",
                  case when state = 'queued' then (
                      select count(*) from races q
                       where q.replica = r.replica and q.state = 'queued' and q.id <= r.id
                         and q.created_at >= now() - make_interval(secs => $2))
                  end as position
             from races r where id = $1"#,
        id,
        ABANDONED_AFTER_S,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let result: Option<RaceResult> = row.result.map(read).transpose()?;
    let state = match row.state {
        RaceState::Queued | RaceState::Running if row.is_old => RaceState::Failed,
        state => state,
    };
    let position = row.position.filter(|_| state == RaceState::Queued);
    let RaceRequest { lock, buyers, stock, .. } = read(row.request)?;
    Ok(Some(Race { id, state, position, lock, buyers, stock, result }))
}

/// Deletes the oldest races beyond `kept`, with their items. Keeps a race whose item has an order
/// that is not cancelled, and one that may still be running.
pub async fn prune(pool: &Pool, kept: i64) -> Result<(), Error> {
    let old = sqlx::query!(
        r#"select id, sku as "sku: Sku" from races r
          where (state in ('done', 'failed') or created_at < now() - make_interval(secs => $3))
            and id < (select id from races order by id desc offset $1 limit 1)
            and not exists (select from order_lines l join orders o on o.id = l.order_id
                             where l.sku = r.sku and o.status <> 'cancelled')
          order by id limit $2"#,
        kept - 1,
        PRUNED_PER_RACE,
        ABANDONED_AFTER_S,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;
    for race in old {
        let is_free = match race.sku {
            Some(sku) => purge_lab_item(pool, &sku).await?,
            None => true,
        };
        if is_free {
            sqlx::query!("delete from races where id = $1", race.id)
                .execute(&mut *pool.acquire().await?)
                .await?;
        }
    }
    Ok(())
}
