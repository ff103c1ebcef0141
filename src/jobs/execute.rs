//! Executes one tick on one replica: acquires the lock, claims the row, runs the job, records the
//! result.
//!
//! Guarantees: the execution ends, and its row records the result, also if the job fails, panics or
//! never returns; an execution that a later holder took over changes no row. It does not retry the
//! job: the scheduler does, once the row allows it.
//!
//! Fails if Postgres stays unavailable while the result is written: the run stays open until the
//! next holder takes it over. Tests: `tests/it/jobs.rs`.

use std::time::Duration;

use holdfast_lock::FencedGuard;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, Holder, LockKey, LockKind, Wait};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::cron::{CronSchedule, RETRY_BACKOFF};
use super::store::{self, AttemptResult, ClaimResult, ClaimedAttempt};
use super::{Job, JobContext, OncePolicy};
use crate::backoff::Backoff;
use crate::metrics::{JOB_DURATION, JOB_RUNS};
use crate::probe::{Point, Probe, ProbedValue};
use crate::shop::{Error, Shop};

/// Timeout of acquiring the lock. It does not wait for a holder: Redis answers at once, or is away.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// Retries of the claim after raising Redis's fence above the row's.
const MAX_FENCE_RAISES: u32 = 3;
/// Attempts to write a result before the run is left to the next holder.
const MAX_WRITE_ATTEMPTS: u32 = 5;
/// Backoff between these attempts.
const WRITE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };
/// Time for a cancelled job to stop. It stops at its next await; a job without an await is left
/// running.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The executing replica.
#[derive(Debug, Clone)]
pub(super) struct Executor {
    pub(super) shop: Shop,
    pub(super) replica: String,
    pub(super) stop: CancellationToken,
}

#[derive(Debug, Clone)]
pub(super) struct TickOffer {
    pub(super) job: &'static Job,
    pub(super) schedule: Option<CronSchedule>,
    pub(super) due_at: OffsetDateTime,
    /// The approximate time, by Postgres's clock.
    pub(super) now: OffsetDateTime,
    /// True if the pause of a failed or parked run is over.
    pub(super) is_retry: bool,
    pub(super) once: OncePolicy,
    pub(super) probe: Probe,
}

/// The outcome of offering a tick to a replica.
#[derive(Debug)]
pub enum RunOutcome {
    Done(Value),
    /// The run failed; if it has a row, it is retried.
    Failed(String),
    Parked(String),
    /// The run ended after a later holder took it over: its result is a stale write.
    Stale,
    Stopped,
    Busy(Holder),
    AlreadyDone,
    /// Nothing to do yet: a pause is not over, or the run of another tick is open.
    NotDue,
}

impl RunOutcome {
    pub fn label(&self) -> &'static str {
        match self {
            RunOutcome::Done(_) => "done",
            RunOutcome::Failed(_) => "failed",
            RunOutcome::Parked(_) => "parked",
            RunOutcome::Stale => "late",
            RunOutcome::Stopped => "stopped",
            RunOutcome::Busy(_) => "busy",
            RunOutcome::AlreadyDone => "already",
            RunOutcome::NotDue => "not-yet",
        }
    }

    pub fn was_executed(&self) -> bool {
        matches!(
            self,
            RunOutcome::Done(_)
                | RunOutcome::Failed(_)
                | RunOutcome::Parked(_)
                | RunOutcome::Stale
                | RunOutcome::Stopped
        )
    }
}

/// Executes a tick. After an error either nothing was started, or the next holder takes the run
/// over.
pub(super) async fn execute(executor: &Executor, offer: &TickOffer) -> Result<RunOutcome, Error> {
    let key = LockKey::new(format!("{{job:{}}}", offer.job.name))?;
    offer.probe.at(Point::Wait, [ProbedValue::key(key.as_str())]).await;
    if offer.once == OncePolicy::Nothing {
        let exit = run(executor, offer, 1, None).await;
        return Ok(exit.into());
    }
    let keys = [key.clone()];
    let ask = AcquireRequest {
        kind: LockKind::Fenced,
        wait: Wait::Try,
        ttl: None,
        deadline: Instant::now() + ACQUIRE_TIMEOUT,
        keys: &keys,
    };
    let mut guards = match executor.shop.locks.leases().acquire(ask).await? {
        AcquireOutcome::Acquired(guards) => guards,
        AcquireOutcome::Busy(holder) | AcquireOutcome::TimedOut { holder, .. } => {
            return Ok(RunOutcome::Busy(holder));
        }
    };
    let began = Instant::now();
    let outcome = under_lock(executor, offer, &key, &mut guards).await;
    if let Ok(outcome) = &outcome
        && outcome.was_executed()
    {
        record_outcome(offer.job, outcome, began.elapsed());
        hold_lock(executor, offer, &key, &guards, began).await;
    }
    guards.release().await;
    offer.probe.at(Point::Release, [ProbedValue::key(key.as_str())]).await;
    outcome
}

/// Counts and logs the outcome as soon as it is written.
fn record_outcome(job: &Job, outcome: &RunOutcome, took: Duration) {
    let (job, label, ms) = (job.name, outcome.label(), took.as_millis());
    metrics::counter!(JOB_RUNS, "job" => job, "outcome" => label).increment(1);
    match outcome {
        RunOutcome::Failed(cause) => {
            tracing::warn!(job, ms, cause, "a job failed; it is tried again")
        }
        RunOutcome::Parked(cause) => tracing::error!(job, ms, cause, "a job is parked: see /jobs"),
        RunOutcome::Stale => tracing::warn!(job, ms, "a job ended after another had followed it"),
        RunOutcome::Done(result) => tracing::debug!(job, ms, %result, "a job is done"),
        RunOutcome::Stopped
        | RunOutcome::Busy(_)
        | RunOutcome::AlreadyDone
        | RunOutcome::NotDue => {}
    }
}

/// Holds the lock for the job's minimum time, unless the replica stops or the lock is lost.
async fn hold_lock(
    executor: &Executor,
    offer: &TickOffer,
    key: &LockKey,
    guards: &Guards,
    began: Instant,
) {
    tokio::select! {
        () = sleep_until(began + offer.job.min_lock_time) => {}
        () = executor.stop.cancelled() => {}
        () = lock_lost(fenced(guards, key)) => {}
    }
}

fn fenced<'g>(guards: &'g Guards, key: &LockKey) -> Option<&'g FencedGuard> {
    guards.get(key).and_then(|guard| guard.as_fenced())
}

/// Returns when the lock is lost; without a lock it never returns.
async fn lock_lost(guard: Option<&FencedGuard>) {
    match guard {
        Some(guard) => guard.wait_until_lost().await,
        None => std::future::pending().await,
    }
}

async fn under_lock(
    executor: &Executor,
    offer: &TickOffer,
    key: &LockKey,
    guards: &mut Guards,
) -> Result<RunOutcome, Error> {
    let attempt = match offer.once {
        OncePolicy::LockAndRow => match claim(executor, offer, key, guards).await? {
            Ok(attempt) => Some(attempt),
            Err(outcome) => return Ok(outcome),
        },
        OncePolicy::Lock | OncePolicy::Nothing => None,
    };
    let fence = guards.fence(key);
    let number = attempt.as_ref().map_or(1, |claimed| claimed.attempt);
    let began = Instant::now();
    let exit = run(executor, offer, number, fenced(guards, key)).await;
    metrics::histogram!(JOB_DURATION, "job" => offer.job.name).record(began.elapsed());
    match (attempt, fence) {
        (Some(attempt), Some(fence)) => {
            record_result(executor, offer, &attempt, fence, exit, began).await
        }
        _ => Ok(exit.into()),
    }
}

/// Claims the row. If the row's fence is not below that of the held lock, Redis has lost its
/// counter: raises the counter above the row's fence and tries again.
async fn claim(
    executor: &Executor,
    offer: &TickOffer,
    key: &LockKey,
    guards: &mut Guards,
) -> Result<Result<ClaimedAttempt, RunOutcome>, Error> {
    let parked_until = offer.schedule.as_ref().and_then(|schedule| schedule.next_tick(offer.now));
    for _ in 0..=MAX_FENCE_RAISES {
        let Some(fence) = guards.fence(key) else { break };
        let holder =
            store::JobLockHolder { job: offer.job.name, replica: &executor.replica, fence };
        let pool = &executor.shop.pool;
        match store::claim(pool, holder, offer.due_at, offer.is_retry, parked_until).await? {
            ClaimResult::Claimed(attempt) => return Ok(Ok(attempt)),
            ClaimResult::Done => return Ok(Err(RunOutcome::AlreadyDone)),
            ClaimResult::NotDue | ClaimResult::OtherRunIsOpen => {
                return Ok(Err(RunOutcome::NotDue));
            }
            ClaimResult::Parked => {
                return Ok(Err(RunOutcome::Parked(store::HOLDER_DIED.to_owned())));
            }
            ClaimResult::StaleFence(floor) => {
                if guards.raise_fence(key, floor).await?.is_none() {
                    break;
                }
            }
        }
    }
    // The lock was lost, or its fence is still not above the row's.
    Ok(Err(RunOutcome::NotDue))
}

/// How a job's task ended.
enum JobExit {
    Ended(Result<Value, String>),
    /// The replica stops.
    Stopped,
}

/// The outcome of an execution without a row.
impl From<JobExit> for RunOutcome {
    fn from(exit: JobExit) -> Self {
        match exit {
            JobExit::Ended(Ok(result)) => RunOutcome::Done(result),
            JobExit::Ended(Err(cause)) => RunOutcome::Failed(cause),
            JobExit::Stopped => RunOutcome::Stopped,
        }
    }
}

/// Runs the job in its own task, which isolates a panic.
async fn run(
    executor: &Executor,
    offer: &TickOffer,
    attempt: i32,
    guard: Option<&FencedGuard>,
) -> JobExit {
    let context = JobContext {
        shop: executor.shop.clone(),
        due_at: offer.due_at,
        attempt,
        fence: guard.map(FencedGuard::fence),
        replica: executor.replica.clone(),
        has_row: offer.once == OncePolicy::LockAndRow,
        probe: offer.probe.clone(),
    };
    let mut task =
        executor.shop.running.spawn_on((offer.job.run_once)(context), &executor.shop.runtime);
    let ended = tokio::select! {
        ended = &mut task => return JobExit::Ended(job_result(ended)),
        () = sleep(offer.job.timeout) => {
            let limit = offer.job.timeout;
            JobExit::Ended(Err(format!("it took longer than {limit:?}, and was cancelled")))
        }
        () = lock_lost(guard) => JobExit::Ended(Err("its lock was lost".to_owned())),
        () = executor.stop.cancelled() => JobExit::Stopped,
    };
    task.abort();
    match timeout(CANCEL_TIMEOUT, task).await {
        // The job completed before the abort took effect.
        Ok(Ok(done)) => JobExit::Ended(job_result(Ok(done))),
        Ok(Err(_)) => ended,
        Err(_) => {
            tracing::error!(job = offer.job.name, "a job does not stop: it never waits");
            ended
        }
    }
}

fn job_result(ended: Result<anyhow::Result<Value>, JoinError>) -> Result<Value, String> {
    match ended {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => {
                let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
                let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(format!("it panicked: {}", message.unwrap_or_default()))
            }
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Records the result, with retries, while the lock keeps other holders from taking the run over.
async fn record_result(
    executor: &Executor,
    offer: &TickOffer,
    attempt: &ClaimedAttempt,
    fence: i64,
    exit: JobExit,
    began: Instant,
) -> Result<RunOutcome, Error> {
    let result = match exit {
        JobExit::Ended(Ok(result)) => AttemptResult::Done(result),
        JobExit::Ended(Err(cause)) if attempt.attempt >= attempt.attempts_allowed => {
            let now = attempt.started_at + began.elapsed();
            AttemptResult::Parked(
                cause,
                offer.schedule.as_ref().and_then(|schedule| schedule.next_tick(now)),
            )
        }
        JobExit::Ended(Err(cause)) => {
            AttemptResult::Failed(cause, RETRY_BACKOFF.after(attempt.attempt.unsigned_abs()))
        }
        JobExit::Stopped => AttemptResult::Stopped,
    };
    for write in 1.. {
        match store::record_result(&executor.shop.pool, attempt.id, fence, &result).await {
            Ok(true) => break,
            Ok(false) => return Ok(RunOutcome::Stale),
            Err(error) if write == MAX_WRITE_ATTEMPTS => return Err(error),
            Err(_) => sleep(WRITE_BACKOFF.after(write)).await,
        }
    }
    Ok(match result {
        AttemptResult::Done(result) => RunOutcome::Done(result),
        AttemptResult::Failed(cause, _) => RunOutcome::Failed(cause),
        AttemptResult::Parked(cause, _) => RunOutcome::Parked(cause),
        AttemptResult::Stopped => RunOutcome::Stopped,
    })
}
