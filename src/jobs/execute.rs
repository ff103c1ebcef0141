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
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Wait};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span, field};

use super::cron::Schedule;
use super::job::{Job, JobContext, OncePolicy};
use super::outcome::RunOutcome;
use super::store::{self, ClaimResult, ClaimedAttempt};
use crate::backoff::Backoff;
use crate::metrics::{JOB_ATTEMPTS, JOB_DURATION};
use crate::probe::{Point, Probe, ProbedValue};
use crate::shop::{Error, Shop, with_timeout};

/// Timeout of acquiring the lock, which does not wait for a holder.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// Retries of the claim after raising Redis's fence above the row's.
const MAX_FENCE_RAISES: u32 = 3;
/// Timeout of a claim or of an attempt to write a result, during which the lock is renewed. More
/// than a statement may take (4 s), so it bounds the wait for a silent Postgres.
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to write a result before the run is left to the next holder.
const MAX_WRITE_ATTEMPTS: u32 = 5;
/// Backoff between these attempts.
const WRITE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };
/// Time for a cancelled job to stop. It stops at its next await; a job without an await is left
/// running.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which the lock is renewed beyond the job's timeout: for the claim, and for all attempts
/// to write the result while Postgres is slow.
const MAX_LOCK_OVERHEAD: Duration = Duration::from_mins(1);

/// The executing replica.
#[derive(Debug, Clone)]
pub(super) struct Executor {
    pub(super) shop: Shop,
    pub(super) replica: String,
    pub(super) stop: CancellationToken,
}

/// A tick to execute.
#[derive(Debug, Clone)]
pub(super) struct DueTick {
    pub(super) job: &'static Job,
    pub(super) due_at: OffsetDateTime,
    /// The approximate time, by Postgres's clock.
    pub(super) now: OffsetDateTime,
    /// True if the pause of a failed or parked run is over.
    pub(super) is_retry: bool,
    pub(super) once: OncePolicy,
    pub(super) probe: Probe,
}

impl DueTick {
    fn next_tick(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        Schedule::of(self.job)?.next_tick(now)
    }
}

impl Executor {
    /// Executes a tick. After an error either nothing was started, or the next holder takes the run
    /// over.
    pub(super) async fn execute(&self, tick: &DueTick) -> Result<RunOutcome, Error> {
        let (job, due_at) = (tick.job.name, tick.due_at);
        let span = error_span!(parent: None, "job", job, %due_at, outcome = field::Empty);
        let outcome = self.execute_once(tick).instrument(span.clone()).await;
        if let Ok(outcome) = &outcome {
            span.record("outcome", outcome.label());
        }
        outcome
    }

    async fn execute_once(&self, tick: &DueTick) -> Result<RunOutcome, Error> {
        let key = LockKey::new(format!("{{job:{}}}", tick.job.name))?;
        tick.probe.at(Point::Wait, [ProbedValue::key(key.as_str())]).await;
        if tick.once == OncePolicy::Nothing {
            return Ok(self.run(tick, 1, None).await);
        }
        let keys = [key.clone()];
        let request = AcquireRequest {
            kind: LockKind::Fenced,
            wait: Wait::Try,
            ttl: None,
            deadline: Instant::now() + ACQUIRE_TIMEOUT,
            keys: &keys,
        };
        let max_hold = tick.job.timeout + MAX_LOCK_OVERHEAD;
        let locks = self.shop.locks.leases().clone().with_max_hold(max_hold);
        let mut guards = match locks.acquire(request).await? {
            AcquireOutcome::Acquired(guards) => guards,
            AcquireOutcome::Busy(holder) | AcquireOutcome::TimedOut { holder, .. } => {
                return Ok(RunOutcome::Busy(holder));
            }
        };
        let began = Instant::now();
        let outcome = self.under_lock(tick, &key, &mut guards).await;
        if let Ok(outcome) = &outcome
            && outcome.was_executed()
        {
            record_outcome(tick.job, outcome, began.elapsed());
        }
        guards.release().await;
        tick.probe.at(Point::Release, [ProbedValue::key(key.as_str())]).await;
        outcome
    }

    async fn under_lock(
        &self,
        tick: &DueTick,
        key: &LockKey,
        guards: &mut Guards,
    ) -> Result<RunOutcome, Error> {
        let attempt = match tick.once {
            OncePolicy::LockAndRow => match self.claim(tick, key, guards).await? {
                ClaimResult::Claimed(attempt) => Some(attempt),
                ClaimResult::Done => return Ok(RunOutcome::AlreadyDone),
                ClaimResult::Parked => {
                    return Ok(RunOutcome::Parked(store::HOLDER_DIED.to_owned()));
                }
                ClaimResult::NotDue | ClaimResult::StaleFence(_) => return Ok(RunOutcome::NotDue),
            },
            OncePolicy::Lock | OncePolicy::Nothing => None,
        };
        let fence = guards.fence(key);
        let number = attempt.as_ref().map_or(1, |claimed| claimed.attempt);
        let began = Instant::now();
        let result = self.run(tick, number, fenced(guards, key)).await;
        metrics::histogram!(JOB_DURATION, "job" => tick.job.name).record(began.elapsed());
        match (attempt, fence) {
            (Some(attempt), Some(fence)) => {
                self.record_result(tick, &attempt, fence, result, began).await
            }
            _ => Ok(result),
        }
    }

    /// Claims the row. If the row's fence is not below that of the held lock, Redis has lost its
    /// counter: raises the counter above the row's fence and tries again.
    async fn claim(
        &self,
        tick: &DueTick,
        key: &LockKey,
        guards: &mut Guards,
    ) -> Result<ClaimResult, Error> {
        let DueTick { job, due_at, now, is_retry, .. } = tick;
        let Executor { shop, replica, .. } = self;
        let parked_until = tick.next_tick(*now);
        for _ in 0..=MAX_FENCE_RAISES {
            let Some(fence) = guards.fence(key) else { break };
            let holder = store::JobLockHolder { job: job.name, replica, fence };
            let claiming = store::claim(&shop.pool, holder, *due_at, *is_retry, parked_until);
            let claimed = with_timeout(STORE_TIMEOUT, claiming).await?;
            let ClaimResult::StaleFence(floor) = claimed else { return Ok(claimed) };
            if guards.raise_fence(key, floor).await?.is_none() {
                break;
            }
        }
        // The lock was lost, or its fence is still not above the row's.
        Ok(ClaimResult::NotDue)
    }

    /// Runs the job in its own task, which isolates a panic.
    async fn run(&self, tick: &DueTick, attempt: i32, guard: Option<&FencedGuard>) -> RunOutcome {
        let (job, Executor { shop, replica, stop }) = (tick.job, self);
        let context = JobContext {
            shop: shop.clone(),
            due_at: tick.due_at,
            attempt,
            fence: guard.map(FencedGuard::fence),
            replica: replica.clone(),
            has_row: tick.once == OncePolicy::LockAndRow,
            probe: tick.probe.clone(),
        };
        let mut task = shop.tasks.spawn((job.work)(context).in_current_span());
        let ended = tokio::select! {
            ended = &mut task => return job_result(ended),
            () = sleep(job.timeout) => {
                let limit = job.timeout;
                RunOutcome::Failed(format!("it took longer than {limit:?}, and was cancelled"))
            }
            () = lock_lost(guard) => RunOutcome::Failed("its lock was lost".to_owned()),
            () = stop.cancelled() => RunOutcome::Stopped,
        };
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

    /// Records the result, with retries, while the lock keeps other holders from taking the run
    /// over.
    async fn record_result(
        &self,
        tick: &DueTick,
        attempt: &ClaimedAttempt,
        fence: i64,
        result: RunOutcome,
        began: Instant,
    ) -> Result<RunOutcome, Error> {
        let result = match result {
            RunOutcome::Failed(cause) if attempt.attempt >= attempt.attempts_allowed => {
                RunOutcome::Parked(cause)
            }
            result => result,
        };
        let next_tick = tick.next_tick(attempt.started_at + began.elapsed());
        let pool = &self.shop.pool;
        for write in 1.. {
            match with_timeout(
                STORE_TIMEOUT,
                store::record_result(pool, attempt, fence, &result, next_tick),
            )
            .await
            {
                Ok(true) => break,
                Ok(false) => return Ok(RunOutcome::Stale),
                Err(error) if write == MAX_WRITE_ATTEMPTS => return Err(error),
                Err(_) => sleep(WRITE_BACKOFF.after(write)).await,
            }
        }
        Ok(result)
    }
}

/// Counts and logs the outcome as soon as it is written.
fn record_outcome(job: &Job, outcome: &RunOutcome, took: Duration) {
    let (job, label, ms) = (job.name, outcome.label(), took.as_millis());
    metrics::counter!(JOB_ATTEMPTS, "job" => job, "outcome" => label).increment(1);
    match outcome {
        RunOutcome::Failed(cause) => tracing::warn!(job, ms, cause, "a job failed; it is retried"),
        RunOutcome::Parked(cause) => tracing::error!(job, ms, cause, "a job is parked: see /jobs"),
        RunOutcome::Stale => tracing::warn!(job, ms, "a job ended after its run was taken over"),
        RunOutcome::Done(result) => tracing::debug!(job, ms, %result, "a job is done"),
        RunOutcome::Stopped
        | RunOutcome::Busy(_)
        | RunOutcome::AlreadyDone
        | RunOutcome::NotDue => {}
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

fn job_result(ended: Result<anyhow::Result<Value>, JoinError>) -> RunOutcome {
    let error = match ended {
        Ok(Ok(result)) => return RunOutcome::Done(result),
        Ok(Err(error)) => return RunOutcome::Failed(format!("{error:#}")),
        Err(error) => error,
    };
    RunOutcome::Failed(match error.try_into_panic() {
        Ok(panic) => {
            let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
            let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("it panicked: {}", message.unwrap_or_default())
        }
        Err(error) => error.to_string(),
    })
}
