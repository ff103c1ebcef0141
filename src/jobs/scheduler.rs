//! The scheduler: one in every replica, all of which decide alike.
//!
//! It polls every two seconds with one query by index in Postgres; Redis is not queried while
//! nothing is due. Between polls it sleeps until the next tick, for [`POLL_INTERVAL`] at most, so
//! it detects a clock that jumps, a machine that was suspended and a holder that died within that
//! time.
//!
//! Fails closed: without Redis no job starts, without Postgres no job is due. An outage is logged
//! once, and so is its end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt as _;
use time::OffsetDateTime;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::cron::{CronSchedule, TickDecision, decide};
use super::execute::{DueTick, Executor, RunOutcome, STORE_TIMEOUT};
use super::history::{self, JobRun};
use super::job::{Job, OncePolicy};
use crate::probe::Probe;
use crate::shop::{Error, Shop, within};

/// Upper bound of the pause between two polls.
pub const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Lower bound of the pause, which prevents a busy loop around a tick.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The scheduler of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<SchedulerState>);

#[derive(Debug)]
struct SchedulerState {
    executor: Executor,
    /// True if it polls by itself; otherwise it only executes ticks it is offered.
    on: bool,
    scheduled: Vec<ScheduledJob>,
    names: Vec<String>,
    /// Jobs that a poll of this replica started and that still run.
    running_jobs: Mutex<HashSet<&'static str>>,
    /// Ticks that are done although the newest row does not show it: the clock was set back.
    done_ticks: Mutex<HashMap<&'static str, OffsetDateTime>>,
    postgres_is_unavailable: AtomicBool,
    redis_is_unavailable: AtomicBool,
}

#[derive(Debug)]
pub struct ScheduledJob {
    pub job: &'static Job,
    /// Its schedule, if it has one.
    pub schedule: Option<CronSchedule>,
}

impl Scheduler {
    /// Creates the idle scheduler of `jobs` for a replica; `on`: [`Scheduler::run`] polls.
    pub fn new(
        shop: &Shop,
        replica: &str,
        stop: &CancellationToken,
        on: bool,
        jobs: &[&'static Job],
    ) -> anyhow::Result<Self> {
        let scheduled: Vec<ScheduledJob> = jobs
            .iter()
            .map(|job| {
                let schedule = job.cron.map(CronSchedule::parse).transpose()?;
                Ok(ScheduledJob { job, schedule })
            })
            .collect::<anyhow::Result<_>>()?;
        let (shop, replica, stop) = (shop.clone(), replica.to_owned(), stop.clone());
        Ok(Self(Arc::new(SchedulerState {
            executor: Executor { shop, replica, stop },
            on,
            names: scheduled.iter().map(|scheduled| scheduled.job.name.to_owned()).collect(),
            scheduled,
            running_jobs: Mutex::default(),
            done_ticks: Mutex::default(),
            postgres_is_unavailable: AtomicBool::new(false),
            redis_is_unavailable: AtomicBool::new(false),
        })))
    }

    pub fn is_on(&self) -> bool {
        self.0.on
    }

    pub fn scheduled(&self) -> &[ScheduledJob] {
        &self.0.scheduled
    }

    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// Polls and starts due runs until the replica stops; returns at once if the scheduler is off.
    pub async fn run(self) {
        if !self.0.on {
            return;
        }
        loop {
            let pause = self.poll().await;
            tokio::select! {
                () = self.0.executor.stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Polls once, starts due runs in their own tasks, and returns the pause before the next poll.
    pub async fn poll(&self) -> Duration {
        let mut pause = POLL_INTERVAL.mul_f64(rand::rng().random_range(0.75..=1.0));
        let pool = &self.0.executor.shop.pool;
        let runs = history::newest_and_open(pool, &self.0.names);
        let (now, runs) = match within(STORE_TIMEOUT, runs).await {
            Ok(runs) => runs,
            Err(error) => {
                self.note_unavailable(&error);
                return pause;
            }
        };
        self.note_available(&self.0.postgres_is_unavailable, "Postgres");
        audit::record_newest(&runs);
        for scheduled in &self.0.scheduled {
            let runs = runs.iter().filter(|run| run.job == scheduled.job.name);
            let runs: Vec<JobRun> = runs.cloned().collect();
            match decide(scheduled.schedule.as_ref(), now, &runs) {
                TickDecision::Start(due_at)
                    if self.0.done_ticks.lock().get(scheduled.job.name) == Some(&due_at) => {}
                TickDecision::Start(due_at) | TickDecision::TakeOver(due_at) => {
                    self.start(scheduled, due_at, now, false);
                }
                TickDecision::Retry(due_at) => self.start(scheduled, due_at, now, true),
                TickDecision::Wait(Some(at)) => {
                    let left = Duration::try_from(at - now).unwrap_or_default();
                    pause = pause.min(left.max(MIN_POLL_INTERVAL));
                }
                TickDecision::Wait(None) => {}
            }
        }
        pause
    }

    /// Executes a tick of a job now, regardless of its schedule; for the lab. Returns `None` if
    /// there is no job of that name. Safe to drop: an execution that has started runs to its end.
    pub async fn offer(
        &self,
        job: &str,
        due_at: OffsetDateTime,
        once: OncePolicy,
        probe: Probe,
    ) -> Result<Option<RunOutcome>, Error> {
        let scheduled = self.0.scheduled.iter().find(|scheduled| scheduled.job.name == job);
        let Some(ScheduledJob { job, schedule }) = scheduled else { return Ok(None) };
        let (schedule, now, is_retry) = (schedule.clone(), due_at, false);
        let tick = DueTick { job, schedule, due_at, now, is_retry, once, probe };
        let (scheduler, shop) = (self.clone(), &self.0.executor.shop);
        let execution = async move { scheduler.execute(&tick).await };
        let outcome = shop.tasks.spawn(execution).await;
        outcome.map_err(|error| Error::Bug(format!("a run's task ended: {error}")))?.map(Some)
    }

    /// Starts the execution of a tick, unless the job still runs from an earlier poll.
    fn start(
        &self,
        scheduled: &ScheduledJob,
        due_at: OffsetDateTime,
        now: OffsetDateTime,
        is_retry: bool,
    ) {
        let job = scheduled.job;
        if !self.0.running_jobs.lock().insert(job.name) {
            return;
        }
        let schedule = scheduled.schedule.clone();
        let (once, probe) = (OncePolicy::LockAndRow, Probe::Off);
        let tick = DueTick { job, schedule, due_at, now, is_retry, once, probe };
        let mark = RunningMark { scheduler: self.clone(), job: job.name };
        let shop = &self.0.executor.shop;
        let execution = async move {
            if let Err(error) = mark.scheduler.execute(&tick).await {
                mark.scheduler.note_unavailable(&error);
            }
        };
        drop(shop.tasks.spawn(execution));
    }

    async fn execute(&self, tick: &DueTick) -> Result<RunOutcome, Error> {
        let outcome = self.0.executor.execute(tick).await?;
        self.note_available(&self.0.redis_is_unavailable, "Redis");
        if matches!(outcome, RunOutcome::AlreadyDone) {
            self.0.done_ticks.lock().insert(tick.job.name, tick.due_at);
        }
        Ok(outcome)
    }

    fn note_unavailable(&self, error: &Error) {
        let redis =
            matches!(error, Error::Unavailable { what: "Redis", .. } | Error::RedisRefuses { .. });
        let unavailable =
            if redis { &self.0.redis_is_unavailable } else { &self.0.postgres_is_unavailable };
        if !unavailable.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "no job is started");
        }
    }

    fn note_available(&self, unavailable: &AtomicBool, what: &str) {
        if unavailable.swap(false, Ordering::Relaxed) {
            tracing::info!("{what} is available again; jobs are started");
        }
    }
}

/// Marks a job as running on this replica, until it is dropped.
struct RunningMark {
    scheduler: Scheduler,
    job: &'static str,
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        self.scheduler.0.running_jobs.lock().remove(self.job);
    }
}
