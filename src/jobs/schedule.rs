//! The scheduler: one in every replica, all of which decide alike.
//!
//! It polls every two seconds with one indexed statement in Postgres; Redis is not queried while
//! nothing is due. Between polls it sleeps until the next tick, for [`LOOK_EVERY`] at most, so it
//! detects a clock that jumps, a machine that was suspended and a holder that died within that
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

use super::store;
use super::timetable::{Step, Timetable, step};
use super::turn::{self, By, Came, Offer};
use super::{Job, Once};
use crate::probe::Probe;
use crate::shop::{Error, Shop};

/// Upper bound of the pause between two polls.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Lower bound of the pause, which prevents a busy loop around a tick.
const LOOK_AT_MOST: Duration = Duration::from_millis(20);

/// The scheduler of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    by: By,
    /// True if it polls by itself; otherwise it only executes ticks it is offered.
    on: bool,
    planned: Vec<Planned>,
    names: Vec<String>,
    /// Jobs that a poll of this replica started and that still run.
    at_it: Mutex<HashSet<&'static str>>,
    /// Ticks that are done although the newest row does not show it: the clock was put back.
    settled: Mutex<HashMap<&'static str, OffsetDateTime>>,
    postgres_is_away: AtomicBool,
    redis_is_away: AtomicBool,
}

#[derive(Debug)]
pub struct Planned {
    pub job: &'static Job,
    /// Its timetable, if it has one.
    pub timetable: Option<Timetable>,
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
        let planned: Vec<Planned> = jobs
            .iter()
            .map(|job| {
                let timetable = job.timetable.map(Timetable::read).transpose()?;
                Ok(Planned { job, timetable })
            })
            .collect::<anyhow::Result<_>>()?;
        let (shop, replica, stop) = (shop.clone(), replica.to_owned(), stop.clone());
        Ok(Self(Arc::new(Inner {
            by: By { shop, replica, stop },
            on,
            names: planned.iter().map(|planned| planned.job.name.to_owned()).collect(),
            planned,
            at_it: Mutex::default(),
            settled: Mutex::default(),
            postgres_is_away: AtomicBool::new(false),
            redis_is_away: AtomicBool::new(false),
        })))
    }

    pub fn is_on(&self) -> bool {
        self.0.on
    }

    pub fn planned(&self) -> &[Planned] {
        &self.0.planned
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
            let pause = self.look().await;
            tokio::select! {
                () = self.0.by.stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Polls once, starts due runs in their own tasks, and returns the pause before the next poll.
    pub async fn look(&self) -> Duration {
        let mut pause = LOOK_EVERY.mul_f64(rand::rng().random_range(0.75..=1.0));
        let book = match store::book(&self.0.by.shop.pool, &self.0.names).await {
            Ok(book) => book,
            Err(error) => {
                self.away(&error);
                return pause;
            }
        };
        self.back(&self.0.postgres_is_away, "Postgres");
        for planned in &self.0.planned {
            let known = book.known.get(planned.job.name).cloned().unwrap_or_default();
            match step(planned.timetable.as_ref(), book.now, &known) {
                Step::Begin(due_at) if self.is_settled(planned.job, due_at) => {}
                Step::Begin(due_at) | Step::Follow(due_at) => {
                    self.begin(planned, due_at, book.now, false);
                }
                Step::Again(due_at) => self.begin(planned, due_at, book.now, true),
                Step::Wait(Some(at)) => {
                    let left = Duration::try_from(at - book.now).unwrap_or_default();
                    pause = pause.min(left.max(LOOK_AT_MOST));
                }
                Step::Wait(None) => {}
            }
        }
        pause
    }

    /// Executes a tick of a job now, regardless of its timetable; for the lab. Returns `None` if
    /// there is no job of that name. Safe to drop: an execution that has started runs to its end.
    pub async fn offer(
        &self,
        job: &str,
        due_at: OffsetDateTime,
        once: Once,
        probe: Probe,
    ) -> Result<Option<Came>, Error> {
        let planned = self.0.planned.iter().find(|planned| planned.job.name == job);
        let Some(planned) = planned else { return Ok(None) };
        let timetable = planned.timetable.clone();
        let offer =
            Offer { job: planned.job, timetable, due_at, now: due_at, again: false, once, probe };
        let (here, shop) = (self.clone(), &self.0.by.shop);
        let turn = async move { here.take(&offer).await };
        let came = shop.running.spawn_on(turn, &shop.runtime).await;
        came.map_err(|error| Error::Bug(format!("a turn's task ended: {error}")))?.map(Some)
    }

    /// Starts the execution of a tick, unless the job still runs from an earlier poll.
    fn begin(&self, planned: &Planned, due_at: OffsetDateTime, now: OffsetDateTime, again: bool) {
        let job = planned.job;
        if !self.0.at_it.lock().insert(job.name) {
            return;
        }
        let timetable = planned.timetable.clone();
        let (once, probe) = (Once::LockAndRow, Probe::Off);
        let offer = Offer { job, timetable, due_at, now, again, once, probe };
        let (here, shop) = (AtIt { scheduler: self.clone(), job: job.name }, &self.0.by.shop);
        let turn = async move {
            if let Err(error) = here.scheduler.take(&offer).await {
                here.scheduler.away(&error);
            }
        };
        drop(shop.running.spawn_on(turn, &shop.runtime));
    }

    async fn take(&self, offer: &Offer) -> Result<Came, Error> {
        let came = turn::take(&self.0.by, offer).await?;
        self.back(&self.0.redis_is_away, "Redis");
        if matches!(came, Came::Already) {
            self.0.settled.lock().insert(offer.job.name, offer.due_at);
        }
        Ok(came)
    }

    fn away(&self, error: &Error) {
        let redis = matches!(error, Error::Unavailable { what: "Redis", .. });
        let away = if redis { &self.0.redis_is_away } else { &self.0.postgres_is_away };
        if !away.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "no job is begun");
        }
    }

    fn back(&self, away: &AtomicBool, what: &str) {
        if away.swap(false, Ordering::Relaxed) {
            tracing::info!("{what} is back, and jobs are begun again");
        }
    }

    fn is_settled(&self, job: &Job, due_at: OffsetDateTime) -> bool {
        self.0.settled.lock().get(job.name) == Some(&due_at)
    }
}

/// Marks a job as running on this replica, until it is dropped.
struct AtIt {
    scheduler: Scheduler,
    job: &'static str,
}

impl Drop for AtIt {
    fn drop(&mut self) {
        self.scheduler.0.at_it.lock().remove(self.job);
    }
}
