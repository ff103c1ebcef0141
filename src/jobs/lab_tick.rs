//! The lab's own job: inserts a mark, so that the lab can count executions.
//!
//! It has no timetable: the lab offers a tick to each replica. If a row ensures that the tick runs
//! once, the mark is identified by job and tick, as a job's effect should be: if the holder dies
//! between its mark and its result, the next holder inserts no second mark.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::job::{Job, JobContext};
use crate::db::Pool;
use crate::probe::{Point, ProbedValue};
use crate::shop::Error;

pub const NAME: &str = "lab-tick";

pub(super) const JOB: Job = Job {
    name: NAME,
    about: "Does nothing for the shop. The lesson run-once counts how often one tick runs.",
    cron: None,
    timeout: Duration::from_secs(30),
    work: |context| Box::pin(work(context)),
};

async fn work(context: JobContext) -> anyhow::Result<Value> {
    let seen = || ProbedValue { key: format!("{{job:{NAME}}}"), value: None, fence: context.fence };
    if context.fence.is_some() {
        context.probe.at(Point::Held, [seen()]).await;
    }
    let once = context.has_row.then(|| format!("{NAME} {}", context.due_at.unix_timestamp_nanos()));
    let inserted = sqlx::query!(
        "insert into lab_marks (due_at, replica, fence, once) values ($1, $2, $3, $4)
         on conflict do nothing",
        context.due_at,
        context.replica,
        context.fence,
        once,
    )
    .execute(&mut *context.shop.connection().await?)
    .await?;
    context.probe.at(Point::Write, [seen()]).await;
    Ok(json!({ "marks": inserted.rows_affected() }))
}

#[derive(Debug, Clone)]
pub struct LabMark {
    pub replica: String,
    pub fence: Option<i64>,
}

/// Returns the marks of a tick, in order of insertion.
pub async fn marks(pool: &Pool, due_at: OffsetDateTime) -> Result<Vec<LabMark>, Error> {
    let marks = sqlx::query_as!(
        LabMark,
        "select replica, fence from lab_marks where due_at = $1 order by id",
        due_at
    );
    Ok(marks.fetch_all(&mut *pool.acquire().await?).await?)
}

/// Deletes marks older than a day; checks the `max` oldest.
pub async fn delete_old(pool: &Pool, max: i64) -> Result<u64, Error> {
    let deleted = sqlx::query!(
        "delete from lab_marks where id = any(array(
            select old.id from (select id, at from lab_marks order by id limit $1) old
             where old.at < clock_timestamp() - interval '1 day'))",
        max,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(deleted.rows_affected())
}
