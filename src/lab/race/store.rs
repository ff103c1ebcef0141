//! Races among the runs in Postgres: the replica that runs a race writes it, every replica reads
//! it.
//!
//! The newest [`MAX_KEPT_RACES`] races are kept. Each race deletes two of those beyond, with their
//! items and orders, once none of these is pending.

use uuid::Uuid;

use super::model::RaceRequest;
use crate::db::Pool;
use crate::lab::run::LabRunState;
use crate::lab::store::json;
use crate::shop::store::purge_lab_item;
use crate::shop::{Error, Sku};

pub const MAX_KEPT_RACES: i64 = 2_000;
/// Races deleted per race.
const PRUNED_PER_RACE: usize = 2;
/// Races that are looked at for that.
const TRIED_PER_RACE: i64 = 8;

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

/// Deletes some of the races beyond `kept`, with their items. Keeps a race whose item has a pending
/// order or belongs to an item of a newer race, and one that may still be running.
pub async fn prune(pool: &Pool, kept: i64) -> Result<(), Error> {
    // In random order: those that must be kept do not keep the others.
    let old = sqlx::query!(
        r#"select race.id, race.sku as "sku: Sku",
                  'lab-' || replace(oldest.id::text, '-', '') as "newest!"
             from lab_runs race
             join (select id from lab_runs where replica is not null
                    order by id desc offset $1 limit 1) as oldest on race.id < oldest.id
            where race.replica is not null and lab_run_state(race) in ('done', 'failed')
            order by random() limit $2"#,
        kept - 1,
        TRIED_PER_RACE,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;
    let mut pruned = 0;
    for race in old {
        let is_free = match race.sku {
            Some(sku) => purge_lab_item(pool, &sku, &race.newest).await?,
            None => true,
        };
        if is_free {
            sqlx::query!("delete from lab_runs where id = $1", race.id)
                .execute(&mut *pool.acquire().await?)
                .await?;
            pruned += 1;
        }
        if pruned == PRUNED_PER_RACE {
            break;
        }
    }
    Ok(())
}
