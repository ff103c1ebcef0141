//! Races among the runs in Postgres: the replica that runs a race writes it, every replica reads it.
//!
//! The newest [`MAX_KEPT_RACES`] races are kept. Each race deletes the two oldest ones beyond that,
//! with their items and orders, as soon as these orders have expired.

use uuid::Uuid;

use super::model::RaceRequest;
use crate::db::Pool;
use crate::lab::run::LabRunState;
use crate::lab::store::json;
use crate::shop::store::purge_lab_item;
use crate::shop::{Error, Sku};

pub const MAX_KEPT_RACES: i64 = 2_000;
/// Races deleted per race.
const PRUNED_PER_RACE: i64 = 2;

pub(super) async fn insert(
    pool: &Pool,
    id: Uuid,
    replica: &str,
    request: &RaceRequest,
    state: LabRunState,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into lab_runs (id, replica, wanted, state) values ($1, $2, $3, $4)",
        id,
        replica,
        json(&request.to_run())?,
        state as LabRunState,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Records that a race sells this item from now on.
pub(super) async fn start(pool: &Pool, id: Uuid, sku: &Sku) -> Result<(), Error> {
    sqlx::query!(
        "update lab_runs set state = 'running', sku = $2, frame = frame + 1 where id = $1",
        id,
        sku.as_str(),
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Deletes the oldest races beyond `kept`, with their items. Keeps a race whose item has an order
/// that is not cancelled, and one that may still be running.
pub async fn prune(pool: &Pool, kept: i64) -> Result<(), Error> {
    let old = sqlx::query!(
        r#"select id, sku as "sku: Sku" from lab_runs race
          where replica is not null and lab_run_state(race) in ('done', 'failed')
            and id < (select id from lab_runs where replica is not null
                       order by id desc offset $1 limit 1)
            and not exists (select from order_lines l join orders o on o.id = l.order_id
                             where l.sku = race.sku and o.status <> 'cancelled')
          order by id limit $2"#,
        kept - 1,
        PRUNED_PER_RACE,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    for race in old {
        let is_free = match race.sku {
            Some(sku) => purge_lab_item(pool, &sku).await?,
            None => true,
        };
        if is_free {
            sqlx::query!("delete from lab_runs where id = $1", race.id)
                .execute(&mut *pool.acquire().await?)
                .await?;
        }
    }
    Ok(())
}
