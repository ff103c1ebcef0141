//! The status of all jobs, for the page and the API.

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::cron::Schedule;
use super::history::{self, JobRun};
use super::order_expiry::{self, ExpiryStatus};
use super::scheduler::Scheduler;
use super::store::RunState;
use crate::shop::{Error, Shop};

const MAX_LATEST_RUNS: i64 = 50;

/// The status of all jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobsStatus {
    /// True if this replica runs jobs by itself.
    pub on: bool,
    /// The time by Postgres's clock, which decides when a job is due.
    #[serde(with = "time::serde::rfc3339")]
    pub now: OffsetDateTime,
    /// The jobs.
    pub jobs: Vec<JobStatus>,
    /// Parked runs.
    pub parked: Vec<JobRun>,
    /// The newest runs, newest first.
    pub runs: Vec<JobRun>,
    /// The expiry of unpaid orders.
    pub unpaid: ExpiryStatus,
}

/// The status of one job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobStatus {
    /// Its name.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// Cron expression, in UTC.
    pub timetable: Option<&'static str>,
    /// The timetable in words.
    pub timetable_in_words: Option<String>,
    /// Timeout of a run, in seconds; a longer run is cancelled.
    pub at_most_for_s: u64,
    /// Its next tick.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_due_at: Option<OffsetDateTime>,
    /// Its newest run.
    pub last: Option<JobRun>,
    /// Its newest completed run, with the result.
    pub last_done: Option<JobRun>,
}

pub async fn jobs_status(shop: &Shop, scheduler: &Scheduler) -> Result<JobsStatus, Error> {
    let pool = &shop.pool;
    let (now, newest_and_open) = history::newest_and_open(pool, scheduler.names()).await?;
    let runs = history::latest(pool, MAX_LATEST_RUNS).await?;
    let jobs = scheduler.jobs().iter().map(|job| {
        let schedule = Schedule::of(job);
        let mut of_job = newest_and_open.iter().filter(|run| run.job == job.name);
        JobStatus {
            name: job.name,
            about: job.about,
            timetable: job.cron,
            timetable_in_words: schedule.as_ref().map(Schedule::describe),
            at_most_for_s: job.timeout.as_secs(),
            next_due_at: schedule.and_then(|schedule| schedule.next_tick(now)),
            last: of_job.clone().next().cloned(),
            last_done: of_job.find(|run| run.state == RunState::Done).cloned(),
        }
    });
    let jobs = jobs.collect();
    let parked = newest_and_open.into_iter().filter(|run| run.state == RunState::Parked).collect();
    let unpaid = order_expiry::status(shop).await?;
    Ok(JobsStatus { on: scheduler.is_on(), now, jobs, parked, runs, unpaid })
}
