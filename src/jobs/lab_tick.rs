//! The lab's own job: inserts a mark, so that the lab can count executions.
//!
//! It has no timetable: the lab offers a tick to each replica. If a row ensures that the tick runs
//! once, the mark is identified by job and tick, as a job's effect should be: if the holder dies
//! between its mark and its result, the next holder inserts no second mark.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Job, Turn};
use crate::db::Pool;
use crate::probe::{Point, Seen};
use crate::shop::Error;

pub const NAME: &str = "lab-tick";

pub(super) const JOB: Job = Job {
    name: NAME,
    about: "Does nothing for the shop: lesson 15 counts with it how often one tick is run.",
    timetable: None,
    at_most_for: Duration::from_secs(30),
    // The lesson is about a lock that is released immediately.
    at_least_for: Duration::ZERO,
    run_once: |turn| Box::pin(run_once(turn)),
};

pub async fn run_once(turn: Turn) -> anyhow::Result<Value> {
    let seen = || Seen { key: format!("{{job:{NAME}}}"), value: None, fence: turn.fence };
    if turn.fence.is_some() {
        turn.probe.at(Point::Held, [seen()]).await;
    }
    let once = turn.is_kept.then(|| format!("{NAME} {}", turn.due_at.unix_timestamp_nanos()));
    let made = sqlx::query!(
        "insert into lab_marks (due_at, replica, fence, once) values ($1, $2, $3, $4)
         on conflict do nothing",
        turn.due_at,
        turn.replica,
        turn.fence,
        once,
    )
    .execute(&mut *turn.shop.connection().await?)
    .await?;
    turn.probe.at(Point::Write, [seen()]).await;
    Ok(json!({ "marks": made.rows_affected() }))
}

#[derive(Debug, Clone)]
pub struct Mark {
    pub replica: String,
    pub fence: Option<i64>,
}

/// Returns the marks of a tick, in order of insertion.
pub async fn marks(pool: &Pool, due_at: OffsetDateTime) -> Result<Vec<Mark>, Error> {
    let marks = sqlx::query_as!(
        Mark,
        "select replica, fence from lab_marks where due_at = $1 order by id",
        due_at
    );
    Ok(marks.fetch_all(&mut *pool.acquire().await?).await?)
}

/// Deletes marks older than a day; checks the `most` oldest.
pub async fn forget(pool: &Pool, most: i64) -> Result<u64, Error> {
    let forgotten = sqlx::query!(
        "delete from lab_marks where id = any(array(
            select old.id from (select id, at from lab_marks order by id limit $1) old
             where old.at < clock_timestamp() - interval '1 day'))",
        most,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(forgotten.rows_affected())
}
