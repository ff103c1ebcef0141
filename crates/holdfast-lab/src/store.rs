//! Runs in Postgres: a request inserts a row, the runner claims it, every replica reads it. One
//! runs at a time, by a unique index. A run with a `replica` is a race, which that one executes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

pub use super::stored_run::{ImportedRun, StoredRun, find, find_stored, import};

use super::progress::{self, Visitor};
use super::run::{LabRunState, RunProgress, RunRequest, RunResult};
use holdfast_base::messages::{Text, message};
use holdfast_shop::db::Pool;
use holdfast_shop::{Error, UserId};

pub const MAX_KEPT_RUNS: i64 = 200;
/// All lessons, and some loads.
pub const MAX_QUEUED_RUNS: i64 = 32;
pub const MAX_OPEN_RUNS_OF_USER: i64 = 3;
/// Age up to which a lesson's run is that of others who start the same lesson, though it is done: a
/// class presses its buttons within seconds, and a lesson may take less.
const SHARED_RUN_AGE_S: f64 = 10.0;
/// Seconds without a heartbeat after which the runner counts as gone; the interval is 1 s.
const HEARTBEAT_TIMEOUT_S: f64 = 5.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnqueueResult {
    Queued(Uuid),
    QueueFull,
    UserLimit,
    NoRunner,
    /// The user, or the visitor's, is disabled.
    VisitorLeft,
}

#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// Must be valid.
    pub request: &'a RunRequest,
    /// The visitor, if signed in and subject to [`MAX_OPEN_RUNS_OF_USER`].
    pub user: Option<UserId>,
    /// The visitor, if the run of a lesson may be one that others have started.
    pub visitor: Option<Visitor>,
}

/// The state of a run, cheap enough to poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunRevision {
    /// Raised by every change of the progress.
    pub number: i64,
    pub is_over: bool,
    pub position: Option<i64>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunSummary {
    pub id: Uuid,
    pub state: LabRunState,
    #[serde(rename = "wanted")]
    pub request: RunRequest,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[schema(value_type = Option<String>)]
    pub verdict: Option<Text>,
    pub claim_shown: Option<bool>,
}

/// Queues a run. A visitor who starts a lesson joins a run of it that others have started, unless
/// it is over and the visitor has seen that.
pub async fn enqueue(pool: &Pool, run: NewRun<'_>) -> Result<RunEnqueueResult, Error> {
    let wanted = json(run.request)?;
    let mut tx = pool.begin().await?;
    if !lock_queue(&mut tx).await? {
        return Ok(RunEnqueueResult::NoRunner);
    }
    let visitor = run.visitor.and_then(|visitor| visitor.user);
    if !progress::keep_user(&mut tx, run.user.or(visitor)).await? {
        return Ok(RunEnqueueResult::VisitorLeft);
    }
    if let Some(id) = shared_run(&mut tx, run, &wanted).await? {
        return Ok(RunEnqueueResult::Queued(id));
    }

    let user = run.user.map(|user| user.0);
    let open = sqlx::query!(
        r#"select count(*) filter (where state = 'queued') as "queued!",
                  count(*) filter (where user_id = $1) as "of_user!"
             from lab_runs where state in ('queued', 'running') and replica is null"#,
        user,
    )
    .fetch_one(&mut *tx)
    .await?;
    if open.queued >= MAX_QUEUED_RUNS {
        return Ok(RunEnqueueResult::QueueFull);
    }
    if open.of_user >= MAX_OPEN_RUNS_OF_USER {
        return Ok(RunEnqueueResult::UserLimit);
    }

    let id = Uuid::now_v7();
    sqlx::query!(
        "insert into lab_runs (id, wanted, user_id) values ($1, $2, $3)",
        id,
        wanted,
        user,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;

    // The run is queued, also if old ones stay until the next.
    if let Err(error) = prune_all(pool).await {
        tracing::warn!(%error, "old runs were not deleted");
    }
    Ok(RunEnqueueResult::Queued(id))
}

async fn prune_all(pool: &Pool) -> Result<(), Error> {
    let mut connection = pool.acquire().await?;
    prune(&mut connection).await?;
    progress::prune(&mut connection).await
}

/// Waits for others who queue a run, so that each sees the runs of those before; returns whether a
/// runner is alive. The row of its heartbeat is the lock: without one nothing is queued.
async fn lock_queue(connection: &mut PgConnection) -> Result<bool, Error> {
    let is_alive = sqlx::query_scalar!(
        r#"select seen_at > clock_timestamp() - make_interval(secs => $1) as "is_alive!"
             from lab_runner where only_one for update"#,
        HEARTBEAT_TIMEOUT_S,
    )
    .fetch_optional(connection)
    .await?;
    Ok(is_alive == Some(true))
}

async fn shared_run(
    connection: &mut PgConnection,
    run: NewRun<'_>,
    wanted: &serde_json::Value,
) -> Result<Option<Uuid>, Error> {
    let (Some(visitor), Some(lesson)) = (run.visitor, &run.request.lesson) else {
        return Ok(None);
    };
    let shared = sqlx::query_scalar!(
        "select id from lab_runs run
          where replica is null and not from_file and wanted = $1
            and (state in ('queued', 'running')
                 or state = 'done'
                    and created_at > clock_timestamp() - make_interval(secs => $4)
                    and not exists (select from lab_progress
                                     where activity = $2 and visitor = $3
                                       and done_at >= run.ended_at))
          order by created_at desc limit 1",
        wanted,
        lesson,
        visitor.id,
        SHARED_RUN_AGE_S,
    );
    Ok(shared.fetch_optional(connection).await?)
}

/// Deletes all but the newest runs and those that a student handed in. A run from a file counts
/// from when the file was opened.
pub(super) async fn prune(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!(
        "delete from lab_runs where state in ('done', 'failed') and id in
             (select id from lab_runs where replica is null
               order by greatest(created_at, ended_at) desc offset $1)
           and not exists (select from lab_progress p
                            where p.run_id = lab_runs.id and p.handed_in_at is not null)",
        MAX_KEPT_RUNS,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub async fn revision(pool: &Pool, id: Uuid) -> Result<Option<RunRevision>, Error> {
    let row = sqlx::query!(
        r#"select frame, lab_run_state(run) in ('done', 'failed') as "is_over!",
                  case when state = 'queued' then lab_queue_position(run) end as position
             from lab_runs run where id = $1"#,
        id,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;

    Ok(row.map(|row| RunRevision {
        number: row.frame,
        is_over: row.is_over,
        position: row.position,
    }))
}

#[derive(Debug, Clone, Copy)]
pub struct LessonRun {
    pub id: Uuid,
    pub is_over: bool,
}

/// Returns the newest run of a lesson that goes on, or has ended after `since`.
pub async fn run_of_lesson(
    pool: &Pool,
    lesson: &str,
    since: Option<OffsetDateTime>,
) -> Result<Option<LessonRun>, Error> {
    let run = sqlx::query_as!(
        LessonRun,
        r#"select id, state = 'done' as "is_over!" from lab_runs
            where replica is null and not from_file and wanted ->> 'lesson' = $1
              and (state in ('queued', 'running') or state = 'done' and ended_at > $2)
            order by created_at desc limit 1"#,
        lesson,
        since,
    );
    Ok(run.fetch_optional(&mut *pool.acquire().await?).await?)
}

/// Returns the newest run of a lesson that goes on, or has ended after `since`, with its lesson.
pub async fn newest_run_of_lesson(
    pool: &Pool,
    since: OffsetDateTime,
) -> Result<Option<(LessonRun, String)>, Error> {
    let run = sqlx::query!(
        r#"select id, state = 'done' as "is_over!", wanted ->> 'lesson' as "lesson!"
             from lab_runs
            where replica is null and not from_file and wanted ->> 'lesson' is not null
              and (state in ('queued', 'running') or state = 'done' and ended_at > $1)
            order by created_at desc limit 1"#,
        since,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    Ok(run.map(|run| (LessonRun { id: run.id, is_over: run.is_over }, run.lesson)))
}

/// Returns the runs older than `after`, of one lesson if given, newest first; none if that run is
/// deleted.
pub async fn newest(
    pool: &Pool,
    after: Option<Uuid>,
    lesson: Option<&str>,
    limit: i64,
) -> Result<Vec<RunSummary>, Error> {
    let rows = sqlx::query!(
        r#"select id, wanted, state, created_at, verdict, claim_shown
             from lab_runs
            where replica is null
              and ($1::uuid is null
                   or (created_at, id) < (select created_at, id from lab_runs where id = $1))
              and ($2::text is null or wanted ->> 'lesson' = $2)
            order by created_at desc, id desc limit $3"#,
        after,
        lesson,
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
                verdict: row.verdict.map(read).transpose()?.flatten(),
                claim_shown: row.claim_shown,
            })
        })
        .collect()
}

/// Claims the run that was queued first, unless one is marked as running.
pub(super) async fn claim(pool: &Pool) -> Result<Option<(Uuid, RunRequest)>, Error> {
    let row = sqlx::query!(
        "update lab_runs set state = 'running', frame = frame + 1
          where id = (select id from lab_runs where state = 'queued' and replica is null
                       order by created_at, id limit 1)
            and not exists (select from lab_runs where state = 'running' and replica is null)
         returning id, wanted"
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
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

/// Marks `running` runs as failed. The runner calls it only while it executes none.
pub(super) async fn fail_abandoned(pool: &Pool) -> Result<(), Error> {
    let verdict = Some(message!("run-abandoned").into());
    let outcome = RunResult { verdict, ..RunResult::default() };
    sqlx::query!(
        "update lab_runs
            set state = 'failed', frame = frame + 1, ended_at = now(), outcome = $1
          where state = 'running' and replica is null",
        json(&outcome)?,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

pub(super) fn json(value: &impl Serialize) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Bug(format!("no JSON to store: {error}")))
}

fn read<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| Error::Bug(format!("stored JSON: {error}")))
}
