//! The scheduler: one in every replica, all of which decide alike.
//!
//! Between polls it sleeps until the next tick, for [`POLL_INTERVAL`] at most, so that it detects a
//! clock that jumps, a machine that was suspended and a holder that died. Without Redis no job
//! starts, without Postgres no job is due.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt as _;
use time::OffsetDateTime;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::cron::{Schedule, TickDecision, decide};
use super::execute::{DueTick, Executor, STORE_TIMEOUT};
use super::history::{self, JobRun};
use super::job::{Job, OncePolicy};
use super::outcome::RunOutcome;
use crate::probe::Probe;
use crate::shop::{Error, Shop, with_timeout};

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
    jobs: Vec<&'static Job>,
    names: Vec<String>,
    /// Jobs that a poll of this replica started and that still run.
    running_jobs: Mutex<HashSet<&'static str>>,
    /// True from an error until a poll finds nothing due, or a run has been executed.
    is_unavailable: AtomicBool,
}

impl Scheduler {
    /// Creates the idle scheduler of `jobs` for a replica; `on`: [`Scheduler::run`] polls.
    pub fn new(
        shop: &Shop,
        replica: &str,
        stop: &CancellationToken,
        on: bool,
        jobs: &[&'static Job],
    ) -> Self {
        let (shop, replica, stop) = (shop.clone(), replica.to_owned(), stop.clone());
        Self(Arc::new(SchedulerState {
            executor: Executor { shop, replica, stop },
            on,
            jobs: jobs.to_vec(),
            names: jobs.iter().map(|job| job.name.to_owned()).collect(),
            running_jobs: Mutex::default(),
            is_unavailable: AtomicBool::new(false),
        }))
    }

    pub fn is_on(&self) -> bool {
        self.0.on
    }

    pub fn jobs(&self) -> &[&'static Job] {
        &self.0.jobs
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
        let (now, runs) = match with_timeout(STORE_TIMEOUT, runs).await {
            Ok(runs) => runs,
            Err(error) => {
                self.note_unavailable(&error);
                return pause;
            }
        };
        audit::record_newest(&runs);

        let mut is_idle = true;
        for job in self.jobs() {
            let runs: Vec<JobRun> =
                runs.iter().filter(|run| run.job == job.name).cloned().collect();
            let (due_at, is_retry) = match decide(Schedule::of(job).as_ref(), now, &runs) {
                TickDecision::Start(due_at) | TickDecision::TakeOver(due_at) => (due_at, false),
                TickDecision::Retry(due_at) => (due_at, true),
                TickDecision::Wait(at) => {
                    if let Some(at) = at {
                        let left = Duration::try_from(at - now).unwrap_or_default();
                        pause = pause.min(left.max(MIN_POLL_INTERVAL));
                    }
                    continue;
                }
            };
            is_idle = false;
            self.start(job, due_at, now, is_retry);
        }
        if is_idle {
            self.note_available();
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
        let Some(job) = self.0.jobs.iter().find(|known| known.name == job) else {
            return Ok(None);
        };
        let tick = DueTick { job, due_at, now: due_at, is_retry: false, once, probe };
        let (scheduler, shop) = (self.clone(), &self.0.executor.shop);
        let execution = async move { scheduler.execute(&tick).await };
        let outcome = shop.tasks.spawn(execution).await;
        outcome.map_err(|error| Error::Bug(format!("a run's task ended: {error}")))?.map(Some)
    }

    /// Starts the execution of a tick, unless the job still runs from an earlier poll.
    fn start(
        &self,
        job: &'static Job,
        due_at: OffsetDateTime,
        now: OffsetDateTime,
        is_retry: bool,
    ) {
        if !self.0.running_jobs.lock().insert(job.name) {
            return;
        }
        let once = OncePolicy::LockAndRow;
        let tick = DueTick { job, due_at, now, is_retry, once, probe: Probe::Off };
        let mark = RunningMark { scheduler: self.clone(), job: job.name };
        drop(self.0.executor.shop.tasks.spawn(async move {
            if let Err(error) = mark.scheduler.execute(&tick).await {
                mark.scheduler.note_unavailable(&error);
            }
        }));
    }

    async fn execute(&self, tick: &DueTick) -> Result<RunOutcome, Error> {
        let outcome = self.0.executor.execute(tick).await?;
        self.note_available();
        Ok(outcome)
    }

    fn note_unavailable(&self, error: &Error) {
        if !self.0.is_unavailable.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "no job is started");
        }
    }

    fn note_available(&self) {
        if self.0.is_unavailable.swap(false, Ordering::Relaxed) {
            tracing::info!("Postgres and Redis are available again; jobs are started");
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
