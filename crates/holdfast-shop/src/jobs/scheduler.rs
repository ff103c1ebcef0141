//! The scheduler: one in every replica, all of which decide alike; a claim in Postgres admits one.
//!
//! Guarantees: an attempt ends, and its row records the result, also if the job fails, panics or
//! never returns; an attempt that a later holder took over changes no row. If Postgres stays
//! unavailable while the result is written, the next holder repeats the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span, field};
use utoipa::ToSchema;

use super::audit;
use super::job::{Job, JobContext};
use super::order_expiry::{self, ExpiryStatus};
use super::runs::{self, Attempt, JobRun, RunOutcome, RunState};
use crate::probe::Probe;
use crate::{Error, Shop, with_timeout};
use holdfast_base::metrics::{SECONDS, define_metrics};

const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a poll, a claim, or a write of a result: more than a statement may take (4 s).
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a lease is renewed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a renewal. With the interval it is half of the lease, so one may fail.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts to write a result before the run is left to the next holder, and the pause after each.
const MAX_WRITE_ATTEMPTS: u32 = 5;
const WRITE_PAUSE: Duration = Duration::from_millis(700);
/// Time for a cancelled job to stop at an await.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

define_metrics! {
    JOB_DURATION: "holdfast_job_duration_seconds", Histogram ["job"] SECONDS,
        "Duration of one attempt of a scheduled job";
    JOB_ATTEMPTS: "holdfast_job_attempts_total", Counter ["job", "outcome"] &[],
        "Attempts of scheduled jobs by outcome: done, failed (is retried), stale, stopped";
}

/// The scheduler of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<SchedulerState>);

#[derive(Debug)]
struct SchedulerState {
    shop: Shop,
    replica: String,
    stop: CancellationToken,
    /// True if it polls by itself; otherwise it only executes ticks it is offered.
    on: bool,
    jobs: Vec<&'static Job>,
    /// True from a poll that failed until one that does not.
    is_unavailable: AtomicBool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct JobsStatus {
    /// True if this replica runs jobs by itself.
    pub on: bool,
    pub jobs: Vec<JobStatus>,
    pub unpaid: ExpiryStatus,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct JobStatus {
    pub name: &'static str,
    /// Seconds between two ticks, if it has a timetable.
    pub every_s: Option<i64>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_due_at: Option<OffsetDateTime>,
    pub last: Option<JobRun>,
    /// Its newest completed run, with the result.
    pub last_done: Option<JobRun>,
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
        Self(Arc::new(SchedulerState {
            shop: shop.clone(),
            replica: replica.to_owned(),
            stop: stop.clone(),
            on,
            jobs: jobs.to_vec(),
            is_unavailable: AtomicBool::new(false),
        }))
    }

    pub fn is_on(&self) -> bool {
        self.0.on
    }

    /// Polls until the replica stops; returns at once if the scheduler is off.
    pub async fn run(self) {
        while self.0.on && !self.0.stop.is_cancelled() {
            self.poll().await;

            // The replicas do not poll in step: each claim would meet those of all others.
            let pause = POLL_INTERVAL.mul_f64(0.75 + 0.25 * rand::random::<f64>());
            self.0.stop.run_until_cancelled(sleep(pause)).await;
        }
    }

    /// Starts due runs in their own tasks. Logs once that Postgres is unavailable, and once that it
    /// is back.
    pub async fn poll(&self) {
        let result = with_timeout(STORE_TIMEOUT, self.start_due()).await;
        let failed_before = self.0.is_unavailable.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Err(error) if !failed_before => tracing::warn!(%error, "no job is started"),
            Ok(()) if failed_before => tracing::info!("jobs are started again"),
            _ => {}
        }
    }

    async fn start_due(&self) -> Result<(), Error> {
        let (now, runs) = self.newest_and_open().await?;
        audit::record_newest(&runs);
        for job in &self.0.jobs {
            for due_at in due_ticks(job, &runs, now) {
                if let Ok(attempt) = self.claim(job, due_at).await? {
                    drop(self.spawn(job, due_at, attempt, Probe::Off));
                }
            }
        }
        Ok(())
    }

    /// Executes a tick of a job now, regardless of its schedule. Safe to drop: an attempt that has
    /// started runs to its end.
    pub async fn offer(
        &self,
        job: &'static Job,
        due_at: OffsetDateTime,
        probe: Probe,
    ) -> Result<RunOutcome, Error> {
        match with_timeout(STORE_TIMEOUT, self.claim(job, due_at)).await? {
            Err(outcome) => Ok(outcome),
            Ok(attempt) => {
                let ended = self.spawn(job, due_at, attempt, probe).await;
                ended.map_err(|error| Error::Bug(format!("a run's task ended: {error}")))
            }
        }
    }

    pub async fn status(&self) -> Result<JobsStatus, Error> {
        let (now, runs) = self.newest_and_open().await?;
        let jobs = self.0.jobs.iter().map(|job| {
            let mut of_job = runs.iter().filter(|run| run.job == job.name);
            JobStatus {
                name: job.name,
                every_s: job.timetable.map(|times| times.every_s),
                next_due_at: job.timetable.map(|times| times.next_tick(now)),
                last: of_job.clone().next().cloned(),
                last_done: of_job.find(|run| run.state == RunState::Done).cloned(),
            }
        });

        let unpaid = order_expiry::status(&self.0.shop).await?;
        Ok(JobsStatus { on: self.0.on, jobs: jobs.collect(), unpaid })
    }

    async fn newest_and_open(&self) -> Result<(OffsetDateTime, Vec<JobRun>), Error> {
        let names: Vec<String> = self.0.jobs.iter().map(|job| job.name.to_owned()).collect();
        runs::newest_and_open(&self.0.shop.pool, &names).await
    }

    async fn claim(
        &self,
        job: &Job,
        due_at: OffsetDateTime,
    ) -> Result<Result<Attempt, RunOutcome>, Error> {
        runs::claim(&self.0.shop.pool, job.name, due_at, &self.0.replica).await
    }

    fn spawn(
        &self,
        job: &'static Job,
        due_at: OffsetDateTime,
        attempt: Attempt,
        probe: Probe,
    ) -> JoinHandle<RunOutcome> {
        let span =
            error_span!(parent: None, "job", job = job.name, %due_at, outcome = field::Empty);
        let context = self.context(due_at, attempt.attempt, probe);
        let scheduler = self.clone();

        let execution = async move {
            let began = Instant::now();
            let outcome = scheduler.execute(job, attempt, context).await;
            metrics::histogram!(JOB_DURATION, "job" => job.name).record(began.elapsed());

            let outcome = scheduler.record(attempt, outcome).await;
            tracing::Span::current().record("outcome", outcome.into_str());
            count_and_log(job.name, &outcome, began.elapsed());
            outcome
        };

        // A task of the shop: its shutdown waits for it.
        self.0.shop.tasks.spawn(execution.instrument(span))
    }

    pub(super) fn context(&self, due_at: OffsetDateTime, attempt: i32, probe: Probe) -> JobContext {
        let SchedulerState { shop, replica, .. } = &*self.0;
        JobContext { shop: shop.clone(), due_at, attempt, replica: replica.clone(), probe }
    }

    /// Runs the job in its own task, which isolates a panic, and renews the lease until it ends.
    async fn execute(&self, job: &Job, attempt: Attempt, context: JobContext) -> RunOutcome {
        let mut task = self.0.shop.tasks.spawn((job.work)(context).in_current_span());

        let ended = tokio::select! {
            ended = &mut task => return job_result(ended),
            () = sleep(job.timeout) => {
                let limit = job.timeout;
                RunOutcome::Failed(format!("it took longer than {limit:?}, and was cancelled"))
            }
            () = self.keep_lease(attempt) => RunOutcome::Stale,
            () = self.0.stop.cancelled() => RunOutcome::Stopped,
        };

        // Awaited, so that the next attempt does not run beside the rest of this one.
        task.abort();
        match timeout(CANCEL_TIMEOUT, task).await {
            // The job completed before the abort took effect.
            Ok(Ok(done)) => job_result(Ok(done)),
            Ok(Err(_)) => ended,
            Err(_) => {
                tracing::error!(job = job.name, "a job does not stop: it never awaits");
                ended
            }
        }
    }

    /// Renews the lease until a later attempt has it.
    async fn keep_lease(&self, attempt: Attempt) {
        loop {
            sleep(RENEWAL_INTERVAL).await;
            let renewal = runs::renew(&self.0.shop.pool, attempt);
            // An error says nothing about the lease: a replica that takes over needs Postgres, too.
            if let Ok(false) = with_timeout(RENEWAL_TIMEOUT, renewal).await {
                return;
            }
        }
    }

    async fn record(&self, attempt: Attempt, outcome: RunOutcome) -> RunOutcome {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let recorded = runs::record(&self.0.shop.pool, attempt, &outcome);
            match with_timeout(STORE_TIMEOUT, recorded).await {
                Ok(true) => return outcome,
                Ok(false) => break,
                Err(_) => sleep(WRITE_PAUSE).await,
            }
        }
        RunOutcome::Stale
    }
}

/// Returns the ticks of a job whose runs may be claimed now.
fn due_ticks(job: &Job, runs: &[JobRun], now: OffsetDateTime) -> Vec<OffsetDateTime> {
    let mut of_job = runs.iter().filter(|run| run.job == job.name).peekable();
    let newest = of_job.peek().copied();
    let open: Vec<&JobRun> = of_job.filter(|run| run.state != RunState::Done).collect();

    // An open run does the work of later ticks, too.
    if open.is_empty() {
        return job.timetable.and_then(|times| times.due_tick(now, newest)).into_iter().collect();
    }
    open.into_iter().filter(|run| run.is_free(now)).map(|run| run.due_at).collect()
}

fn count_and_log(job: &'static str, outcome: &RunOutcome, took: Duration) {
    metrics::counter!(JOB_ATTEMPTS, "job" => job, "outcome" => outcome.into_str()).increment(1);

    let ms = took.as_millis();
    match outcome {
        RunOutcome::Failed(cause) => tracing::error!(job, ms, cause, "a job failed; it is retried"),
        RunOutcome::Stale => tracing::warn!(job, ms, "the result of a job could not be recorded"),
        RunOutcome::Done(result) => tracing::debug!(job, ms, %result, "a job is done"),
        RunOutcome::Stopped | RunOutcome::Busy | RunOutcome::Already => {}
    }
}

fn job_result(ended: Result<anyhow::Result<Value>, JoinError>) -> RunOutcome {
    match ended {
        Ok(Ok(result)) => RunOutcome::Done(result),
        Ok(Err(error)) => RunOutcome::Failed(format!("{error:#}")),
        Err(panicked) => RunOutcome::Failed(panicked.to_string()),
    }
}
