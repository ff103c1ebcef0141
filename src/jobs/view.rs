//! The status of all jobs, for the page and the API.

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::Scheduler;
use super::history::{self, Run};
use super::order_expiry::{Unpaid, UnpaidStanding};
use super::store::State;
use crate::shop::{Error, Shop};

const LATEST: i64 = 50;

/// The status of all jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Standing {
    /// True if this replica runs jobs by itself.
    pub on: bool,
    /// The time by Postgres's clock, which decides when a job is due.
    #[serde(with = "time::serde::rfc3339")]
    pub now: OffsetDateTime,
    /// The jobs.
    pub jobs: Vec<JobStanding>,
    /// Parked runs.
    pub parked: Vec<Run>,
    /// The newest runs, newest first.
    pub runs: Vec<Run>,
    /// The expiry of unpaid orders.
    pub unpaid: UnpaidStanding,
}

/// The status of one job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobStanding {
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
    /// Minimum time for which its lock is held, in seconds.
    pub at_least_for_s: u64,
    /// Its next tick.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_due_at: Option<OffsetDateTime>,
    /// Its newest run.
    pub last: Option<Run>,
    /// Its newest completed run, with the result.
    pub last_done: Option<Run>,
}

pub async fn standing(
    shop: &Shop,
    scheduler: &Scheduler,
    unpaid: &Unpaid,
) -> Result<Standing, Error> {
    let pool = &shop.pool;
    let (now, known) = history::standing(pool, scheduler.names()).await?;
    let runs = history::latest(pool, LATEST).await?;
    let jobs = scheduler.planned().iter().map(|planned| {
        let job = planned.job;
        let mut of_job = known.iter().filter(|run| run.job == job.name);
        JobStanding {
            name: job.name,
            about: job.about,
            timetable: job.timetable,
            timetable_in_words: planned.timetable.as_ref().map(|timetable| timetable.words()),
            at_most_for_s: job.at_most_for.as_secs(),
            at_least_for_s: job.at_least_for.as_secs(),
            next_due_at: planned.timetable.as_ref().and_then(|timetable| timetable.next(now)),
            last: of_job.clone().next().cloned(),
            last_done: of_job.find(|run| run.state == State::Done).cloned(),
        }
    });
    let jobs = jobs.collect();
    let parked = known.into_iter().filter(|run| run.state == State::Parked).collect();
    let unpaid = unpaid.standing(shop).await?;
    Ok(Standing { on: scheduler.is_on(), now, jobs, parked, runs, unpaid })
}
