//! What the runs' rows tell whoever looks: the page and the API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::types::Json;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::store::State;
use crate::db::Pool;
use crate::shop::Error;

/// A run: who ran what, when, for how long, with which fence, and what came of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Run {
    /// Its number; runs are numbered in the order in which they were begun.
    pub id: i64,
    /// The job.
    pub job: String,
    /// The tick of its timetable.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// How it stands.
    pub state: State,
    /// Which attempt, from 1.
    pub attempt: i32,
    /// How many there may be before it is parked.
    pub attempts_allowed: i32,
    /// Which replica has it, or had it last.
    pub replica: String,
    /// The fence of that attempt's lock.
    pub fence: i64,
    /// When that attempt began.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// When it is tried again, where it is.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_at: Option<OffsetDateTime>,
    /// What came of it, in the job's own words.
    pub result: Option<Value>,
    /// Why not.
    pub trouble: Option<String>,
    /// The attempts before this one, the latest twenty.
    #[schema(value_type = Vec<Earlier>)]
    pub earlier: Json<Vec<Earlier>>,
}

/// An attempt that came to nothing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Earlier {
    /// Which, from 1.
    pub attempt: i32,
    /// Who.
    pub replica: String,
    /// Under which fence.
    pub fence: i64,
    /// From when.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// Until when; unknown of a holder that died.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// What went wrong.
    pub trouble: String,
}

impl Run {
    pub fn took_ms(&self) -> Option<i64> {
        let took = self.ended_at? - self.started_at;
        Some(i64::try_from(took.whole_milliseconds()).unwrap_or(0).max(0))
    }
}

/// The latest runs, the newest first.
pub async fn latest(pool: &Pool, most: i64) -> Result<Vec<Run>, Error> {
    let runs = sqlx::query_as!(
        Run,
        r#"select id, job, due_at, state as "state: State", attempt, attempts_allowed, replica,
                  fence, started_at, ended_at, next_at, result, trouble,
                  earlier as "earlier: Json<Vec<Earlier>>"
             from job_runs order by id desc limit $1"#,
        most,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;
    Ok(runs)
}

/// Of each of these jobs the run that was begun last and the one that was done last, and of any job
/// whatever is open; the newest first. And the time.
pub async fn standing(pool: &Pool, jobs: &[String]) -> Result<(OffsetDateTime, Vec<Run>), Error> {
    let mut connection = pool.acquire().await?;
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#);
    let now = now.fetch_one(&mut *connection).await?;
    let runs = sqlx::query_as!(
        Run,
        r#"select id, job, due_at, state as "state: State", attempt, attempts_allowed, replica,
                  fence, started_at, ended_at, next_at, result, trouble,
                  earlier as "earlier: Json<Vec<Earlier>>"
             from job_runs
            where id in (select id from job_runs where state <> 'done'
                         union
                         select (select max(id) from job_runs where job = asked.job)
                           from unnest($1::text[]) as asked (job)
                         union
                         select (select max(id) from job_runs
                                  where job = asked.job and state = 'done')
                           from unnest($1::text[]) as asked (job))
            order by id desc"#,
        jobs,
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok((now, runs))
}

pub async fn of(pool: &Pool, job: &str, due_at: OffsetDateTime) -> Result<Option<Run>, Error> {
    let run = sqlx::query_as!(
        Run,
        r#"select id, job, due_at, state as "state: State", attempt, attempts_allowed, replica,
                  fence, started_at, ended_at, next_at, result, trouble,
                  earlier as "earlier: Json<Vec<Earlier>>"
             from job_runs where job = $1 and due_at = $2"#,
        job,
        due_at,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    Ok(run)
}
