//! One replica's turn at one tick: acquire the lock, claim the row, run the job, record its end.
//!
//! Guarantees: whatever the job does (fail, panic, wait for ever), the turn ends and its row says
//! how; a turn whose lock was lost, or that was followed by another's, changes no row. It does not
//! retry the job: a row that failed is another look's business.

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
use crate::lock::fenced::FencedGuard;
use crate::lock::{Ask, Guards, Holder, Kind, LockKey, Outcome, Wait};
use crate::probe::{Point, Probe, Seen};
use crate::shop::{Error, Shop};

/// Redis says at once whether a lock is free, or not at all.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// How often a row's fence is taught to Redis before a turn is given up.
const HEALINGS: u32 = 3;
/// How often an end is written before it is left to whoever follows.
const WRITES: u32 = 5;
/// Between those.
const WRITE_PAUSES: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };
/// A job that is told to stop does so at its next await. One that has none is left behind.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Whose turn.
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
    /// About when it is, by Postgres's clock.
    pub(super) now: OffsetDateTime,
    /// Whether a failed run's pause is over.
    pub(super) again: bool,
    pub(super) once: Once,
    pub(super) probe: Probe,
}

/// The result of a turn.
#[derive(Debug)]
pub enum Came {
    Done(Value),
    /// It failed, and is tried again.
    Failed(String),
    Parked(String),
    /// It ended, but somebody else had followed by then: what it would have said was not written.
    Late,
    Stopped,
    Busy(Holder),
    Already,
    /// Nothing to do yet: a pause is not over, or another tick's run is open.
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

/// Takes a turn at a tick. After an error nothing was begun, or the next holder follows.
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
    let ask = Ask {
        kind: Kind::Fenced,
        wait: Wait::Try,
        ttl: None,
        deadline: Instant::now() + ASK_LIMIT,
        keys: &keys,
    };
    let mut guards = match by.shop.locks.acquire(ask).await? {
        Outcome::Acquired(guards) => guards,
        Outcome::Busy(holder) | Outcome::TimedOut { holder, .. } => return Ok(Came::Busy(holder)),
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

/// Says what came of it, as soon as it is written.
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

/// Holds the lock for as long as the job wants, unless there is a reason not to.
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

/// Returns when the lock is lost; never without one.
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

/// Claims the row. Where it knows a higher fence than ours while the lock is ours, Redis has
/// forgotten its numbers, and is told.
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
                if guards.refence(key, floor).await?.is_none() {
                    break;
                }
            }
        }
    }
    // The lock was lost while it was asked about.
    Ok(Err(Came::NotYet))
}

enum Ran {
    Ended(Result<Value, String>),
    Stopped,
}

/// Runs the job in a task of its own, so that a panic is its own and not the turn's.
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
        // It was done in that very moment.
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

/// Records how it ended, with retries: under the lock, so that no other holder follows.
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
