//! The lab's own job: inserts a mark, so that the lab can count executions of a tick.
//!
//! It has no timetable: the lab offers a tick to each replica. If a row ensures that the tick runs
//! once, the mark is identified by the tick, as a job's effect should be: if the holder dies
//! between its mark and its result, the next holder inserts no second mark.

use std::time::Duration;

use holdfast_lock::{AcquireOutcome, AcquireRequest, LockKey, LockKind, Wait};
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::job::{Job, JobContext};
use super::runs::RunOutcome;
use super::scheduler::Scheduler;
use crate::Error;
use crate::db::Pool;
use crate::probe::{Point, Probe, ProbedValue};

pub const NAME: &str = "lab-tick";
const KEY: &str = "{job:lab-tick}";
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const JOB: Job = Job {
    name: NAME,
    timetable: None,
    timeout: Duration::from_secs(30),
    work: |context| Box::pin(work(context)),
};

/// The mechanism that makes a tick run once. The shop's jobs use the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OncePolicy {
    /// None: every replica runs it.
    Nothing,
    /// A lock, released after the run.
    Lock,
    /// A row with a lease, identified by job and tick.
    Row,
}

pub async fn tick(
    scheduler: &Scheduler,
    due_at: OffsetDateTime,
    once: OncePolicy,
    probe: &Probe,
) -> Result<RunOutcome, Error> {
    probe.at(Point::Wait, [ProbedValue::key(KEY)]).await;
    let context = scheduler.context(due_at, 1, probe.clone());
    match once {
        OncePolicy::Nothing => mark(&context, None).await.map(RunOutcome::Done),
        OncePolicy::Lock => under_lock(&context).await,
        OncePolicy::Row => scheduler.offer(&JOB, due_at, probe.clone()).await,
    }
}

async fn under_lock(context: &JobContext) -> Result<RunOutcome, Error> {
    let keys = [LockKey::new(KEY)?];
    let request = AcquireRequest::new(LockKind::Fenced, &keys)
        .with_wait(Wait::Try)
        .with_deadline(Instant::now() + ACQUIRE_TIMEOUT);
    let acquired = context.shop.locks.leases().acquire(request).await?;
    let AcquireOutcome::Acquired(guards) = acquired else { return Ok(RunOutcome::Busy) };

    let held = ProbedValue::key(KEY).under(guards.fence(&keys[0]));
    context.probe.at(Point::Held, [held]).await;
    // Not identified by the tick: after a lost lock, a second holder inserts a second mark.
    let result = mark(context, None).await?;

    guards.release().await;
    context.probe.at(Point::Release, [ProbedValue::key(KEY)]).await;

    Ok(RunOutcome::Done(result))
}

/// The work of a run with a row: the number of the attempt is its fence.
async fn work(context: JobContext) -> anyhow::Result<Value> {
    let held = ProbedValue::key(KEY).under(Some(context.attempt.into()));
    context.probe.at(Point::Held, [held]).await;
    let once = context.due_at.unix_timestamp_nanos().to_string();
    let result = mark(&context, Some(once)).await?;
    context.probe.at(Point::Release, [ProbedValue::key(KEY)]).await;
    Ok(result)
}

/// Inserts a mark, unless there is one with the identity `once`.
async fn mark(context: &JobContext, once: Option<String>) -> Result<Value, Error> {
    let inserted = sqlx::query!(
        "insert into lab_marks (due_at, replica, once) values ($1, $2, $3) on conflict do nothing",
        context.due_at,
        context.replica,
        once,
    )
    .execute(&mut *context.shop.connection().await?)
    .await?;
    context.probe.at(Point::Write, [ProbedValue::key(KEY)]).await;
    Ok(json!({ "marks": inserted.rows_affected() }))
}

/// Returns the replicas that have marked a tick, in order of insertion.
pub async fn marks(pool: &Pool, due_at: OffsetDateTime) -> Result<Vec<String>, Error> {
    let marks =
        sqlx::query_scalar!("select replica from lab_marks where due_at = $1 order by id", due_at);
    Ok(marks.fetch_all(&mut *pool.acquire().await?).await?)
}

/// Deletes marks older than a day; checks the `max` oldest.
pub(super) async fn delete_old(pool: &Pool, max: i64) -> Result<u64, Error> {
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
