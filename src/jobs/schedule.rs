//! The scheduler: one in every replica, all of the same mind.
//!
//! It looks every other second: one statement to Postgres, by index, and Redis is not asked at all
//! while nothing is due. Between two looks it sleeps until the next tick and never longer than
//! that pause, so a clock that jumps, a machine that slept, and a holder that died are all noticed
//! within it.
//!
//! Fails closed: without Redis no job begins, without Postgres nothing is even due. Both are said
//! once, and once again when they are over.

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

/// The longest time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The shortest time: a tick that is due now and can't be begun is not asked for in a circle.
const LOOK_AT_MOST: Duration = Duration::from_millis(20);

/// The scheduler of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    by: By,
    /// Whether it looks by itself, or only does what it is offered.
    on: bool,
    planned: Vec<Planned>,
    names: Vec<String>,
    /// What this replica is at.
    at_it: Mutex<HashSet<&'static str>>,
    /// Ticks that are done although the latest row does not say so: the clock was put back.
    settled: Mutex<HashMap<&'static str, OffsetDateTime>>,
    postgres_is_away: AtomicBool,
    redis_is_away: AtomicBool,
}

#[derive(Debug)]
pub struct Planned {
    pub job: &'static Job,
    /// When, if by itself.
    pub timetable: Option<Timetable>,
}

impl Scheduler {
    /// The scheduler of these jobs for the replica of that name. `on` says whether it will look by
    /// itself. It does nothing yet.
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

    /// Looks and begins what is due until the replica ends; returns at once where it is off.
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

    /// Looks once, begins what is due in tasks of its own, and returns when to look again.
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

    /// Takes a turn at that tick of that job now, whatever its timetable: what the lab does at its
    /// replicas. `None`: no such job. Safe to drop: a turn that has begun runs to its end.
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

    /// Begins a turn, unless this replica is at that job.
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

/// This replica is at that job, until the value is gone.
struct AtIt {
    scheduler: Scheduler,
    job: &'static str,
}

impl Drop for AtIt {
    fn drop(&mut self) {
        self.scheduler.0.at_it.lock().remove(self.job);
    }
}
