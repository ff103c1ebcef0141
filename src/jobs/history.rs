//! Reads runs, for the scheduler, the page and the API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::types::Json;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::store::RunState;
use crate::db::Pool;
use crate::shop::Error;

/// A run of a job.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct JobRun {
    /// Number of the run, in order of start.
    pub id: i64,
    /// Name of the job.
    pub job: String,
    /// The tick that it executes.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// Its state.
    pub state: RunState,
    /// Number of the current or last attempt, from 1.
    pub attempt: i32,
    /// Number of attempts after which it is parked.
    pub attempts_allowed: i32,
    /// The replica that executes it, or executed it last.
    pub replica: String,
    /// Fence of that attempt's lock.
    pub fence: i64,
    /// Start of that attempt.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// End of that attempt.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// Time of the next attempt, if there is one.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_at: Option<OffsetDateTime>,
    /// The job's own summary of a successful run.
    pub result: Option<Value>,
    /// Error of an unsuccessful run.
    pub error: Option<String>,
    /// The previous attempts, the latest twenty.
    #[schema(value_type = Vec<PreviousAttempt>)]
    pub previous_attempts: Json<Vec<PreviousAttempt>>,
}

/// A previous attempt, which was unsuccessful.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PreviousAttempt {
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// The replica that executed it.
    pub replica: String,
    /// Fence of its lock.
    pub fence: i64,
    /// Start of the attempt.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// End of the attempt; unknown if its holder died.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// Its error.
    pub error: String,
}

impl JobRun {
    pub fn took_ms(&self) -> Option<i64> {
        let took = self.ended_at? - self.started_at;
        Some(i64::try_from(took.whole_milliseconds()).unwrap_or(0).max(0))
    }
}

/// Selects runs.
macro_rules! job_runs {
    ($rows:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            JobRun,
            r#"select id, job, due_at, state as "state: RunState", attempt, attempts_allowed,
                      replica, fence, started_at, ended_at, next_at, result, error,
                      previous_attempts as "previous_attempts: Json<Vec<PreviousAttempt>>"
                 from job_runs "# + $rows,
            $($argument),+
        )
    };
}

/// Returns the newest runs, newest first.
pub async fn latest(pool: &Pool, max: i64) -> Result<Vec<JobRun>, Error> {
    let runs = job_runs!("order by id desc limit $1", max);
    Ok(runs.fetch_all(&mut *pool.acquire().await?).await?)
}

/// Returns the time, and runs, newest first: the newest and the newest completed run of each of
/// these jobs, and the open runs of all jobs.
pub async fn newest_and_open(
    pool: &Pool,
    jobs: &[String],
) -> Result<(OffsetDateTime, Vec<JobRun>), Error> {
    let mut connection = pool.acquire().await?;
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#);
    let now = now.fetch_one(&mut *connection).await?;
    let runs = job_runs!(
        "where id in (select id from job_runs where state <> 'done'
                      union
                      select (select max(id) from job_runs where job = names.job)
                        from unnest($1::text[]) as names (job)
                      union
                      select (select max(id) from job_runs
                               where job = names.job and state = 'done')
                        from unnest($1::text[]) as names (job))
         order by id desc",
        jobs,
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok((now, runs))
}

pub async fn find(pool: &Pool, job: &str, due_at: OffsetDateTime) -> Result<Option<JobRun>, Error> {
    let run = job_runs!("where job = $1 and due_at = $2", job, due_at);
    Ok(run.fetch_optional(&mut *pool.acquire().await?).await?)
}
