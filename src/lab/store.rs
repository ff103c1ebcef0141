//! Runs in Postgres: a request inserts a row, the runner claims it, every replica reads it.
//!
//! Guarantees: one queued or running run per shop, by a unique index; the runner marks an abandoned
//! run as failed. The newest [`MAX_KEPT_RUNS`] runs are kept.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::run::{LabRun, LabRunState, RunProgress, RunRequest, RunResult};
use crate::db::Pool;
use crate::shop::Error;

pub const MAX_KEPT_RUNS: i64 = 200;
/// Seconds without a heartbeat after which the runner counts as gone; the interval is 1 s.
const HEARTBEAT_TIMEOUT_S: f64 = 5.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    Queued(Uuid),
    /// Another run is queued or running.
    Busy(Uuid),
    /// No runner is alive.
    NoRunner,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunSummary {
    pub id: Uuid,
    pub state: LabRunState,
    #[serde(rename = "wanted")]
    pub request: RunRequest,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    pub verdict: Option<String>,
    pub claim_shown: Option<bool>,
}

impl RunSummary {
    pub fn is_of(&self, lesson: &str) -> bool {
        self.request.lesson.as_deref() == Some(lesson)
    }

    pub fn is_over(&self) -> bool {
        self.state.is_over()
    }
}

/// Queues a run, whose request must be valid.
pub async fn enqueue(
    pool: &Pool,
    request: &RunRequest,
    guess: Option<&str>,
) -> Result<EnqueueResult, Error> {
    let mut connection = pool.acquire().await?;
    if !runner_is_alive(&mut connection).await? {
        return Ok(EnqueueResult::NoRunner);
    }
    let id = Uuid::now_v7();
    let inserted = sqlx::query!(
        "insert into lab_runs (id, wanted, guess) values ($1, $2, $3) on conflict do nothing",
        id,
        json(request)?,
        guess,
    )
    .execute(&mut *connection)
    .await?;
    if inserted.rows_affected() == 0 {
        let other = sqlx::query_scalar!(
            "select id from lab_runs where state in ('queued', 'running') limit 1"
        )
        .fetch_optional(&mut *connection)
        .await?;
        // The other run has just ended; callers retry.
        return Ok(other.map_or(EnqueueResult::NoRunner, EnqueueResult::Busy));
    }
    prune(&mut connection).await?;
    Ok(EnqueueResult::Queued(id))
}

/// Deletes all but the newest runs. A run from a file is as old as its file was opened, so that an
/// old run is not deleted as soon as it is stored.
async fn prune(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!(
        "delete from lab_runs where state in ('done', 'failed') and id in
             (select id from lab_runs order by greatest(created_at, ended_at) desc offset $1)",
        MAX_KEPT_RUNS,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores a run that was executed elsewhere, under its id; returns `false` if the id exists.
pub async fn keep(pool: &Pool, run: &LabRun) -> Result<bool, Error> {
    let mut connection = pool.acquire().await?;
    let kept = sqlx::query!(
        "insert into lab_runs
             (id, wanted, state, progress, outcome, guess, created_at, ended_at, from_file)
         values ($1, $2, $3, $4, $5, $6, $7, now(), true)
         on conflict (id) do nothing",
        run.id,
        json(&run.request)?,
        run.state as LabRunState,
        json(&run.progress)?,
        json(&run.outcome)?,
        run.guess,
        run.created_at,
    )
    .execute(&mut *connection)
    .await?;
    prune(&mut connection).await?;
    Ok(kept.rows_affected() == 1)
}

pub async fn find(pool: &Pool, id: Uuid) -> Result<Option<LabRun>, Error> {
    let row = sqlx::query!(
        "select wanted, state, progress, outcome, guess, created_at, from_file
           from lab_runs where id = $1",
        id,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(LabRun {
        id,
        state: read(row.state.into())?,
        request: read(row.wanted)?,
        progress: read(row.progress)?,
        guess: row.guess,
        from_file: row.from_file,
        created_at: row.created_at,
        outcome: row.outcome.map(read).transpose()?.unwrap_or_default(),
    }))
}

/// Returns a run's frame and whether it is over. Cheap enough to poll.
pub async fn frame(pool: &Pool, id: Uuid) -> Result<Option<(i64, bool)>, Error> {
    let row = sqlx::query!("select frame, state from lab_runs where id = $1", id)
        .fetch_optional(&mut *pool.acquire().await?)
        .await?;
    row.map(|row| Ok((row.frame, read::<LabRunState>(row.state.into())?.is_over()))).transpose()
}

/// Returns the runs older than `after`, newest first; none if that run was deleted meanwhile.
pub async fn newest(
    pool: &Pool,
    after: Option<Uuid>,
    limit: i64,
) -> Result<Vec<RunSummary>, Error> {
    let rows = sqlx::query!(
        r#"select id, wanted, state, created_at, outcome ->> 'verdict' as verdict,
                  (outcome ->> 'claim_shown')::boolean as claim_shown
             from lab_runs
            where $1::uuid is null
               or (created_at, id) < (select created_at, id from lab_runs where id = $1)
            order by created_at desc, id desc limit $2"#,
        after,
        limit,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(RunSummary {
                id: row.id,
                state: read(row.state.into())?,
                request: read(row.wanted)?,
                created_at: row.created_at,
                verdict: row.verdict.filter(|verdict| !verdict.is_empty()),
                claim_shown: row.claim_shown,
            })
        })
        .collect()
}

pub(super) async fn claim(pool: &Pool) -> Result<Option<(Uuid, RunRequest)>, Error> {
    let row = sqlx::query!(
        "update lab_runs set state = 'running', frame = frame + 1 where state = 'queued'
         returning id, wanted"
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    // A run that cannot be read stays `running`; `fail_abandoned` marks it as failed.
    row.map(|row| Ok((row.id, read(row.wanted)?))).transpose()
}

pub(super) async fn save_progress(
    pool: &Pool,
    id: Uuid,
    progress: &RunProgress,
) -> Result<(), Error> {
    sqlx::query!(
        "update lab_runs set progress = $2, frame = frame + 1 where id = $1",
        id,
        json(progress)?,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

pub(super) async fn finish(
    pool: &Pool,
    id: Uuid,
    state: LabRunState,
    outcome: &RunResult,
) -> Result<(), Error> {
    sqlx::query!(
        "update lab_runs
            set state = $2, outcome = $3, frame = frame + 1, ended_at = now() where id = $1",
        id,
        state as LabRunState,
        json(outcome)?,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

pub(super) async fn heartbeat(pool: &Pool) -> Result<(), Error> {
    sqlx::query!(
        "insert into lab_runner (seen_at) values (now())
         on conflict (only_one) do update set seen_at = now()"
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Marks every `running` run as failed. The runner calls it only while it executes none.
pub(super) async fn fail_abandoned(pool: &Pool) -> Result<(), Error> {
    let verdict = "the shop was stopped before the run finished, or the result could not be stored";
    sqlx::query!(
        "update lab_runs
            set state = 'failed', frame = frame + 1, ended_at = now(),
                outcome = jsonb_build_object('verdict', $1::text)
          where state = 'running'",
        verdict,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

async fn runner_is_alive(connection: &mut PgConnection) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"select exists (select from lab_runner
                           where seen_at > now() - make_interval(secs => $1)) as "there!""#,
        HEARTBEAT_TIMEOUT_S,
    )
    .fetch_one(connection)
    .await?)
}

fn json<T: Serialize>(value: &T) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Bug(error.to_string()))
}

fn read<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| Error::Bug(format!("a run: {error}")))
}
