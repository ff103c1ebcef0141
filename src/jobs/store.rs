//! Rows of job runs: which replica started which tick, and its result.
//!
//! Guarantees, by Postgres alone: one row per job and tick, one open run per job, and a result that
//! only the latest holder writes (compare-and-set on the fence). Tests: `tests/it/jobs.rs`.

use std::time::Duration;

use crate::backoff::Backoff;
use serde::{Deserialize, Serialize};
use sqlx::postgres::types::PgInterval;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::outcome::RunOutcome;
use crate::db::Pool;
use crate::shop::Error;

/// Attempts of a run before it is parked.
pub const MAX_ATTEMPTS: i32 = 5;
/// Backoff before a failed run is retried.
pub const RETRY_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };
/// Upper bound of the previous attempts that a row keeps.
const MAX_PREVIOUS_ATTEMPTS: i32 = 20;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum RunState {
    /// A replica executes it, or died while executing it.
    Running,
    /// It is done.
    Done,
    /// It failed, and is retried after a pause.
    Failed,
    /// Its attempts are used up: an admin should look at it.
    Parked,
}

/// The holder of the job's lock, which claims a run.
#[derive(Debug, Clone, Copy)]
pub struct JobLockHolder<'a> {
    pub job: &'a str,
    pub replica: &'a str,
    pub fence: i64,
}

/// An attempt that the caller has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedAttempt {
    pub id: i64,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    pub attempts_allowed: i32,
    /// Start of the attempt, by Postgres's clock.
    pub started_at: OffsetDateTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimResult {
    Claimed(ClaimedAttempt),
    Done,
    /// It failed or is parked, and its pause is not over; or the run of another tick is open.
    NotDue,
    /// The fence in the row, which is not below the holder's: Redis has lost its fences.
    StaleFence(i64),
    /// The holder of every attempt died; the run is now parked.
    Parked,
}

/// Claims the run of a tick, under the job's lock. `is_retry`: the pause of a failed or parked run
/// is over. `parked_until`: the time of the next attempt, if the run has to be parked. After an
/// error it is unknown whether the run was claimed; if it was, the next holder takes it over.
pub async fn claim(
    pool: &Pool,
    holder: JobLockHolder<'_>,
    due_at: OffsetDateTime,
    is_retry: bool,
    parked_until: Option<OffsetDateTime>,
) -> Result<ClaimResult, Error> {
    let mut connection = pool.acquire().await?;
    let claimed = sqlx::query_as!(
        ClaimedAttempt,
        r#"insert into job_runs (job, due_at, state, attempts_allowed, replica, fence)
           values ($1, $2, 'running', $3, $4, $5)
           on conflict do nothing
           returning id, attempt, attempts_allowed, started_at"#,
        holder.job,
        due_at,
        MAX_ATTEMPTS,
        holder.replica,
        holder.fence,
    )
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(attempt) = claimed {
        return Ok(ClaimResult::Claimed(attempt));
    }
    let run = sqlx::query!(
        r#"select id, state as "state: RunState", attempt, attempts_allowed, fence
             from job_runs where job = $1 and due_at = $2"#,
        holder.job,
        due_at,
    )
    .fetch_optional(&mut *connection)
    .await?;
    drop(connection);
    let Some(run) = run else { return Ok(ClaimResult::NotDue) };
    match run.state {
        RunState::Done => Ok(ClaimResult::Done),
        RunState::Failed | RunState::Parked if !is_retry => Ok(ClaimResult::NotDue),
        _ if holder.fence <= run.fence => Ok(ClaimResult::StaleFence(run.fence)),
        // This replica holds the lock, so the previous holder is dead or its lease expired.
        RunState::Running if run.attempt >= run.attempts_allowed => {
            park_dead(pool, holder, run.id, parked_until).await
        }
        RunState::Running | RunState::Failed | RunState::Parked => {
            take_over(pool, holder, run.id).await
        }
    }
}

/// Starts the next attempt of a run; the row keeps the previous attempt.
async fn take_over(pool: &Pool, holder: JobLockHolder<'_>, id: i64) -> Result<ClaimResult, Error> {
    let claimed = sqlx::query_as!(
        ClaimedAttempt,
        r#"update job_runs
              set state = 'running', attempt = attempt + 1, replica = $2, fence = $3,
                  started_at = clock_timestamp(), ended_at = null, next_at = null, error = null,
                  previous_attempts =
                      (case when jsonb_array_length(previous_attempts) < $5 then previous_attempts
                            else previous_attempts - 0 end)
                      || jsonb_build_array(jsonb_build_object(
                             'attempt', attempt, 'replica', replica, 'fence', fence,
                             'started_at', to_json(started_at), 'ended_at', to_json(ended_at),
                             'error', coalesce(error, $4)))
            where id = $1 and fence < $3 and state <> 'done'
        returning id, attempt, attempts_allowed, started_at"#,
        id,
        holder.replica,
        holder.fence,
        HOLDER_DIED,
        MAX_PREVIOUS_ATTEMPTS,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    Ok(claimed.map_or(ClaimResult::Done, ClaimResult::Claimed))
}

/// Error of an attempt that recorded none.
pub const HOLDER_DIED: &str = "its holder died, or was silent for longer than its lease";

/// Parks a run that may have killed every holder, so that it does not kill all replicas in turn.
async fn park_dead(
    pool: &Pool,
    holder: JobLockHolder<'_>,
    id: i64,
    parked_until: Option<OffsetDateTime>,
) -> Result<ClaimResult, Error> {
    sqlx::query!(
        "update job_runs set state = 'parked', ended_at = clock_timestamp(), next_at = $3,
                error = $4, fence = $2
          where id = $1 and fence < $2 and state = 'running'",
        id,
        holder.fence,
        parked_until,
        HOLDER_DIED,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(ClaimResult::Parked)
}

/// Records the outcome of an attempt. Returns `false` if a later holder took the run over; then
/// nothing is written. Repeating it, e.g. after a timeout, is harmless.
pub async fn record_result(
    pool: &Pool,
    attempt: &ClaimedAttempt,
    fence: i64,
    outcome: &RunOutcome,
    next_tick: Option<OffsetDateTime>,
) -> Result<bool, Error> {
    let (state, result, error, pause, at, extra_attempts) = match outcome {
        RunOutcome::Done(result) => (RunState::Done, Some(result), None, None, None, 0),
        RunOutcome::Failed(cause) => {
            let pause = RETRY_BACKOFF.after(attempt.attempt.unsigned_abs());
            (RunState::Failed, None, Some(cause.as_str()), Some(pause), None, 0)
        }
        RunOutcome::Parked(cause) => {
            (RunState::Parked, None, Some(cause.as_str()), None, next_tick, 0)
        }
        RunOutcome::Stopped => {
            (RunState::Failed, None, Some("its replica was stopped"), Some(Duration::ZERO), None, 1)
        }
        // Nothing was executed, or the result is another holder's.
        RunOutcome::Stale | RunOutcome::Busy(_) | RunOutcome::AlreadyDone | RunOutcome::NotDue => {
            return Ok(false);
        }
    };
    let pause = pause.map(|pause| PgInterval {
        months: 0,
        days: 0,
        microseconds: i64::try_from(pause.as_micros()).unwrap_or(i64::MAX),
    });
    let mut connection = pool.acquire().await?;
    let written = sqlx::query!(
        "update job_runs
            set state = $3, result = $4, error = $5, ended_at = clock_timestamp(),
                next_at = coalesce(clock_timestamp() + $6::interval, $7),
                attempts_allowed = attempts_allowed + $8
          where id = $1 and fence = $2 and state = 'running'",
        attempt.id,
        fence,
        state as RunState,
        result,
        error,
        pause,
        at,
        extra_attempts,
    )
    .execute(&mut *connection)
    .await?;
    if written.rows_affected() == 1 {
        return Ok(true);
    }
    // An earlier call may have written it, whose response was lost.
    let current = sqlx::query_scalar!("select fence from job_runs where id = $1", attempt.id)
        .fetch_optional(&mut *connection)
        .await?;
    Ok(current == Some(fence))
}

/// Retries a parked run now, with all its attempts. Returns `false` if it is not parked.
pub async fn try_again(pool: &Pool, id: i64) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update job_runs set state = 'failed', next_at = clock_timestamp(),
                attempts_allowed = attempt + $2
          where id = $1 and state = 'parked'",
        id,
        MAX_ATTEMPTS,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes runs that are done and started more than `days` ago, but never a job's newest. Checks
/// only the `max` oldest runs: few of these are open or a job's newest, so if none of them may be
/// deleted, no later run may either.
pub async fn delete_old(pool: &Pool, days: i32, max: i64) -> Result<u64, Error> {
    let deleted = sqlx::query!(
        "delete from job_runs where id = any(array(
            select old.id
              from (select id, job, state, started_at from job_runs order by id limit $2) old
             where old.state = 'done'
               and old.started_at < clock_timestamp() - make_interval(days => $1)
               and exists (select from job_runs newer
                            where newer.job = old.job and newer.id > old.id)))",
        days,
        max,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(deleted.rows_affected())
}
