//! Rows of job runs: which replica runs which tick, for how long, and the result.
//!
//! Guarantees, by Postgres alone: one row per job and tick; one replica has its lease; only the
//! latest attempt, whose number is its fencing token, renews the lease and writes the result.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Error;
use crate::db::Pool;
use holdfast_base::backoff::Backoff;

/// Lease: the time by which a dead holder delays the next one. Longer than a few slow renewals,
/// because the result is written without them.
const LEASE_S: f64 = 6.0;
const RETRY_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum RunState {
    /// A replica executes it, or died while executing it.
    Running,
    Done,
    /// It failed, and is retried after a pause.
    Failed,
}

/// The outcome of a tick on one replica.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum RunOutcome {
    Done(Value),
    /// It failed, and is retried after a pause.
    Failed(String),
    /// Its result is not recorded: a later holder took the run over, or will.
    Stale,
    /// Its replica was stopped: another replica may run it at once.
    Stopped,
    /// Another replica runs it, or a pause after a failure is not over.
    Busy,
    /// It was done before.
    Already,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct JobRun {
    pub job: String,
    /// The tick that it executes.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    pub state: RunState,
    /// Number of the current or last attempt, from 1; the replica and the times are its own.
    pub attempt: i32,
    pub replica: String,
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// Time from which the next attempt may begin: the end of the lease, or of a pause.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_at: Option<OffsetDateTime>,
    /// The job's own summary of a successful run.
    pub result: Option<Value>,
    /// Error of a failed attempt.
    pub error: Option<String>,
}

impl JobRun {
    /// Returns whether an open run may be claimed, which the claim itself decides: this saves the
    /// write of one that is in vain.
    pub(super) fn is_free(&self, now: OffsetDateTime) -> bool {
        self.next_at.is_none_or(|at| at <= now || at > now + RETRY_BACKOFF.longest)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) id: i64,
    pub(super) attempt: i32,
}

/// Claims the run of a tick, or returns why it is not to be executed. After an error it is unknown
/// whether it was claimed; if it was, the lease ends, and the next holder takes it over.
pub(super) async fn claim(
    pool: &Pool,
    job: &str,
    due_at: OffsetDateTime,
    replica: &str,
) -> Result<Result<Attempt, RunOutcome>, Error> {
    let mut connection = pool.acquire().await?;

    // A clock that is set back must not prolong a lease or a pause.
    let claimed = sqlx::query_as!(
        Attempt,
        "insert into job_runs as run (job, due_at, state, replica, next_at)
         values ($1, $2, 'running', $3, clock_timestamp() + make_interval(secs => $4))
         on conflict (job, due_at) do update
            set state = 'running', attempt = run.attempt + 1, replica = excluded.replica,
                started_at = clock_timestamp(), ended_at = null, next_at = excluded.next_at,
                error = null
          where run.state <> 'done'
            and run.next_at not between clock_timestamp()
                                    and clock_timestamp() + make_interval(secs =>
                                            case when run.state = 'running' then $4 else $5 end)
         returning id, attempt",
        job,
        due_at,
        replica,
        LEASE_S,
        RETRY_BACKOFF.longest.as_secs_f64(),
    )
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(attempt) = claimed {
        return Ok(Ok(attempt));
    }

    // Why not: the statement does not say. A run that is done stays so, so a second one may ask.
    let is_done = sqlx::query_scalar!(
        r#"select state = 'done' as "is_done!" from job_runs where job = $1 and due_at = $2"#,
        job,
        due_at,
    );
    let is_done = is_done.fetch_optional(&mut *connection).await?;
    Ok(Err(if is_done == Some(true) { RunOutcome::Already } else { RunOutcome::Busy }))
}

/// Renews the lease of an attempt. Returns `false` if a later attempt has it.
pub(super) async fn renew(pool: &Pool, attempt: Attempt) -> Result<bool, Error> {
    let renewed = sqlx::query!(
        "update job_runs set next_at = clock_timestamp() + make_interval(secs => $3)
          where id = $1 and attempt = $2 and state = 'running'",
        attempt.id,
        attempt.attempt,
        LEASE_S,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(renewed.rows_affected() == 1)
}

/// Records the outcome of an attempt. Returns `false` if there is a later attempt; then nothing is
/// written. It may be repeated, e.g. after a timeout.
pub(super) async fn record(
    pool: &Pool,
    attempt: Attempt,
    outcome: &RunOutcome,
) -> Result<bool, Error> {
    let (state, result, error, pause) = match outcome {
        RunOutcome::Done(result) => (RunState::Done, Some(result), None, None),
        RunOutcome::Failed(cause) => {
            let pause = RETRY_BACKOFF.after(attempt.attempt.unsigned_abs());
            (RunState::Failed, None, Some(cause.as_str()), Some(pause.as_secs_f64()))
        }
        // No pause: the work is not known to fail, and another replica can do it.
        RunOutcome::Stopped => (RunState::Failed, None, Some("its replica was stopped"), Some(0.0)),
        RunOutcome::Stale | RunOutcome::Busy | RunOutcome::Already => return Ok(false),
    };

    // The attempt's number is its fence: once a later holder has raised it, no row matches.
    let written = sqlx::query!(
        "update job_runs
            set state = $3, result = $4, error = $5, ended_at = clock_timestamp(),
                next_at = clock_timestamp() + make_interval(secs => $6)
          where id = $1 and attempt = $2",
        attempt.id,
        attempt.attempt,
        state as RunState,
        result,
        error,
        pause,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;

    Ok(written.rows_affected() == 1)
}

macro_rules! job_runs {
    ($rows:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            JobRun,
            r#"select job, due_at, state as "state: RunState", attempt, replica, started_at,
                      ended_at, next_at, result, error
                 from job_runs "# + $rows,
            $($argument),+
        )
    };
}

/// Returns the time, and runs, newest first: the newest completed run of each of these jobs, and
/// the open runs of all jobs.
pub(super) async fn newest_and_open(
    pool: &Pool,
    jobs: &[String],
) -> Result<(OffsetDateTime, Vec<JobRun>), Error> {
    let mut connection = pool.acquire().await?;
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#);
    let now = now.fetch_one(&mut *connection).await?;

    let runs = job_runs!(
        "where state <> 'done'
            or id = any (array(select (select max(id) from job_runs
                                        where job = names.job and state = 'done')
                                 from unnest($1::text[]) as names (job)))
         order by id desc",
        jobs,
    );

    Ok((now, runs.fetch_all(&mut *connection).await?))
}

pub async fn find(pool: &Pool, job: &str, due_at: OffsetDateTime) -> Result<Option<JobRun>, Error> {
    let run = job_runs!("where job = $1 and due_at = $2", job, due_at);
    Ok(run.fetch_optional(&mut *pool.acquire().await?).await?)
}

/// Deletes runs that started more than `days` ago and have a later one that is done, so a job keeps
/// its newest result. Checks only the `max` oldest runs: few of these are the newest of a job, so
/// if none of them may be deleted, no later run may either.
pub(super) async fn delete_old(pool: &Pool, days: i32, max: i64) -> Result<u64, Error> {
    let deleted = sqlx::query!(
        "delete from job_runs where id = any(array(
            select old.id
              from (select id, job, state, started_at from job_runs order by id limit $2) old
             where old.started_at < clock_timestamp() - make_interval(days => $1)
               and exists (select from job_runs newer
                            where newer.job = old.job and newer.state = 'done'
                              and newer.id > old.id)))",
        days,
        max,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;

    Ok(deleted.rows_affected())
}
