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

use serde_json::Value;
use time::OffsetDateTime;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::store::{self, Attempt, Claim, End};
use super::timetable::{PAUSES, Timetable};
use super::{Job, Once, Turn};
use crate::clock::Backoff;
use crate::lock::FencedGuard;
use crate::lock::{AcquireOutcome, AcquireRequest, Guards, Holder, LockKey, LockKind, Wait};
use crate::probe::{Point, Probe, Seen};
use crate::shop::{Error, Shop};

/// Timeout of acquiring the lock. It does not wait for a holder: Redis answers at once, or is away.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Retries of the claim after raising Redis's fence above the row's.
const HEALINGS: u32 = 3;
/// Attempts to write a result before the run is left to the next holder.
const WRITES: u32 = 5;
/// Backoff between these attempts.
const WRITE_PAUSES: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };
/// Time for a cancelled job to stop. It stops at its next await; a job without an await is left
/// running.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// The executing replica.
#[derive(Debug, Clone)]
pub(super) struct By {
    pub(super) shop: Shop,
    pub(super) replica: String,
    pub(super) stop: CancellationToken,
}

#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) job: &'static Job,
    pub(super) timetable: Option<Timetable>,
    pub(super) due_at: OffsetDateTime,
    /// The approximate time, by Postgres's clock.
    pub(super) now: OffsetDateTime,
    /// True if the pause of a failed or parked run is over.
    pub(super) again: bool,
    pub(super) once: Once,
    pub(super) probe: Probe,
}

/// The outcome of offering a tick to a replica.
#[derive(Debug)]
pub enum Came {
    Done(Value),
    /// The run failed; if it has a row, it is retried.
    Failed(String),
    Parked(String),
    /// The run ended after a later holder took it over: its result is a stale write.
    Late,
    Stopped,
    Busy(Holder),
    Already,
    /// Nothing to do yet: a pause is not over, or the run of another tick is open.
    NotYet,
}

impl Came {
    pub fn word(&self) -> &'static str {
        match self {
            Came::Done(_) => "done",
            Came::Failed(_) => "failed",
            Came::Parked(_) => "parked",
            Came::Late => "late",
            Came::Stopped => "stopped",
            Came::Busy(_) => "busy",
            Came::Already => "already",
            Came::NotYet => "not-yet",
        }
    }

    pub fn was_run(&self) -> bool {
        matches!(
            self,
            Came::Done(_) | Came::Failed(_) | Came::Parked(_) | Came::Late | Came::Stopped
        )
    }
}

/// Executes a tick. After an error either nothing was started, or the next holder takes the run
/// over.
pub(super) async fn take(by: &By, offer: &Offer) -> Result<Came, Error> {
    let key = LockKey::new(format!("{{job:{}}}", offer.job.name))?;
    offer.probe.at(Point::Wait, [Seen::key(key.as_str())]).await;
    if offer.once == Once::Nothing {
        let came = run(by, offer, 1, None).await;
        return Ok(match came {
            Ran::Ended(Ok(result)) => Came::Done(result),
            Ran::Ended(Err(why)) => Came::Failed(why),
            Ran::Stopped => Came::Stopped,
        });
    }
    let keys = [key.clone()];
    let ask = AcquireRequest {
        kind: LockKind::Fenced,
        wait: Wait::Try,
        ttl: None,
        deadline: Instant::now() + ASK_LIMIT,
        keys: &keys,
    };
    let mut guards = match by.shop.locks.leases().acquire(ask).await? {
        AcquireOutcome::Acquired(guards) => guards,
        AcquireOutcome::Busy(holder) | AcquireOutcome::TimedOut { holder, .. } => {
            return Ok(Came::Busy(holder));
        }
    };
    let began = Instant::now();
    let came = under_lock(by, offer, &key, &mut guards).await;
    if let Ok(came) = &came
        && came.was_run()
    {
        note(offer.job, came, began.elapsed());
        keep_at_least(by, offer, &key, &guards, began).await;
    }
    guards.release().await;
    offer.probe.at(Point::Release, [Seen::key(key.as_str())]).await;
    came
}

/// Counts and logs the outcome as soon as it is written.
fn note(job: &Job, came: &Came, took: Duration) {
    let (job, outcome, ms) = (job.name, came.word(), took.as_millis());
    metrics::counter!("holdfast_job_runs_total", "job" => job, "outcome" => outcome).increment(1);
    match came {
        Came::Failed(why) => tracing::warn!(job, ms, why, "a job failed; it is tried again"),
        Came::Parked(why) => tracing::error!(job, ms, why, "a job is parked: see /jobs"),
        Came::Late => tracing::warn!(job, ms, "a job ended after another had followed it"),
        Came::Done(result) => tracing::debug!(job, ms, %result, "a job is done"),
        Came::Stopped | Came::Busy(_) | Came::Already | Came::NotYet => {}
    }
}

/// Holds the lock for the job's minimum time, unless the replica stops or the lock is lost.
async fn keep_at_least(by: &By, offer: &Offer, key: &LockKey, guards: &Guards, began: Instant) {
    tokio::select! {
        () = sleep_until(began + offer.job.at_least_for) => {}
        () = by.stop.cancelled() => {}
        () = lost(fenced(guards, key)) => {}
    }
}

fn fenced<'g>(guards: &'g Guards, key: &LockKey) -> Option<&'g FencedGuard> {
    guards.guard(key).and_then(|guard| guard.as_fenced())
}

/// Returns when the lock is lost; without a lock it never returns.
async fn lost(guard: Option<&FencedGuard>) {
    match guard {
        Some(guard) => guard.lost().await,
        None => std::future::pending().await,
    }
}

async fn under_lock(
    by: &By,
    offer: &Offer,
    key: &LockKey,
    guards: &mut Guards,
) -> Result<Came, Error> {
    let attempt = match offer.once {
        Once::LockAndRow => match claim(by, offer, key, guards).await? {
            Ok(attempt) => Some(attempt),
            Err(came) => return Ok(came),
        },
        Once::Lock | Once::Nothing => None,
    };
    let fence = guards.fence(key);
    let number = attempt.as_ref().map_or(1, |attempt| attempt.number);
    let began = Instant::now();
    let ran = run(by, offer, number, fenced(guards, key)).await;
    metrics::histogram!("holdfast_job_seconds", "job" => offer.job.name).record(began.elapsed());
    match (attempt, fence) {
        (Some(attempt), Some(fence)) => write_end(by, offer, &attempt, fence, ran, began).await,
        _ => Ok(match ran {
            Ran::Ended(Ok(result)) => Came::Done(result),
            Ran::Ended(Err(why)) => Came::Failed(why),
            Ran::Stopped => Came::Stopped,
        }),
    }
}

/// Claims the row. If the row's fence is not below that of the held lock, Redis has lost its
/// counter: raises the counter above the row's fence and tries again.
async fn claim(
    by: &By,
    offer: &Offer,
    key: &LockKey,
    guards: &mut Guards,
) -> Result<Result<Attempt, Came>, Error> {
    let parked_until = offer.timetable.as_ref().and_then(|timetable| timetable.next(offer.now));
    for _ in 0..=HEALINGS {
        let Some(fence) = guards.fence(key) else { break };
        let holder = store::Holder { job: offer.job.name, replica: &by.replica, fence };
        let pool = &by.shop.pool;
        match store::claim(pool, holder, offer.due_at, offer.again, parked_until).await? {
            Claim::Ours(attempt) => return Ok(Ok(attempt)),
            Claim::Done => return Ok(Err(Came::Already)),
            Claim::NotYet | Claim::OtherIsOpen => return Ok(Err(Came::NotYet)),
            Claim::Parked => return Ok(Err(Came::Parked(store::DIED.to_owned()))),
            Claim::Behind(floor) => {
                if guards.raise_fence(key, floor).await?.is_none() {
                    break;
                }
            }
        }
    }
    // The lock was lost, or its fence is still not above the row's.
    Ok(Err(Came::NotYet))
}

enum Ran {
    Ended(Result<Value, String>),
    Stopped,
}

/// Runs the job in its own task, which isolates a panic.
async fn run(by: &By, offer: &Offer, attempt: i32, guard: Option<&FencedGuard>) -> Ran {
    let turn = Turn {
        shop: by.shop.clone(),
        due_at: offer.due_at,
        attempt,
        fence: guard.map(FencedGuard::fence),
        replica: by.replica.clone(),
        is_kept: offer.once == Once::LockAndRow,
        probe: offer.probe.clone(),
    };
    let mut task = by.shop.running.spawn_on((offer.job.run_once)(turn), &by.shop.runtime);
    let ended = tokio::select! {
        ended = &mut task => return Ran::Ended(outcome(ended)),
        () = sleep(offer.job.at_most_for) => {
            let limit = offer.job.at_most_for;
            Ran::Ended(Err(format!("it took longer than {limit:?}, and was cancelled")))
        }
        () = lost(guard) => Ran::Ended(Err("its lock was lost".to_owned())),
        () = by.stop.cancelled() => Ran::Stopped,
    };
    task.abort();
    match timeout(STOP_LIMIT, task).await {
        // The job completed before the abort took effect.
        Ok(Ok(done)) => Ran::Ended(outcome(Ok(done))),
        Ok(Err(_)) => ended,
        Err(_) => {
            tracing::error!(job = offer.job.name, "a job does not stop: it never waits");
            ended
        }
    }
}

fn outcome(ended: Result<anyhow::Result<Value>, JoinError>) -> Result<Value, String> {
    match ended {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => {
                let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(format!("it panicked: {}", said.unwrap_or_default()))
            }
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Records the result, with retries, while the lock keeps other holders from taking the run over.
async fn write_end(
    by: &By,
    offer: &Offer,
    attempt: &Attempt,
    fence: i64,
    ran: Ran,
    began: Instant,
) -> Result<Came, Error> {
    let end = match ran {
        Ran::Ended(Ok(result)) => End::Done(result),
        Ran::Ended(Err(why)) if attempt.number >= attempt.allowed => {
            let now = attempt.started_at + began.elapsed();
            End::Parked(why, offer.timetable.as_ref().and_then(|timetable| timetable.next(now)))
        }
        Ran::Ended(Err(why)) => End::Failed(why, PAUSES.after(attempt.number.unsigned_abs())),
        Ran::Stopped => End::Stopped,
    };
    for write in 1.. {
        match store::end(&by.shop.pool, attempt.id, fence, &end).await {
            Ok(true) => break,
            Ok(false) => return Ok(Came::Late),
            Err(error) if write == WRITES => return Err(error),
            Err(_) => sleep(WRITE_PAUSES.after(write)).await,
        }
    }
    Ok(match end {
        End::Done(result) => Came::Done(result),
        End::Failed(why, _) => Came::Failed(why),
        End::Parked(why, _) => Came::Parked(why),
        End::Stopped => Came::Stopped,
    })
}
