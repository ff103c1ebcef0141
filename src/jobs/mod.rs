//! Scheduled jobs (this module and its siblings), order expiry ([`unpaid`]), big keys ([`keys`]).
//!
//! Every replica has a scheduler ([`schedule`]), and all of them see every tick. One of them runs
//! it:
//! - **the row** (`job_runs`, unique by job and due time) says that this tick was begun;
//! - **the lock** (`fenced`, `job:NAME`) keeps two apart, and its lease ends when its holder dies;
//! - **the fence** is in the row: a holder that was followed can't write how its run ended.
//!
//! Guarantees: one run per job and tick, one open run per job; a run that fails, panics or hangs is
//! tried again after growing pauses, then parked, shown on `/jobs`, and tried once at every tick.
//!
//! Does not guarantee that the *work* of a run is done once: a holder may die after its work and
//! before its row says so. So a job is repeatable, or its effect bears the run's name and time
//! ([`lab_tick`]). Nor does it stop a job that never awaits.

pub mod history;
pub mod keys;
pub mod lab_tick;
pub mod purge;
pub mod reconcile;
pub mod schedule;
pub mod store;
pub mod timetable;
pub mod unpaid;
pub mod view;

mod turn;
mod walk;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use time::OffsetDateTime;

use crate::probe::Probe;
use crate::shop::Shop;

pub use schedule::Scheduler;
pub use turn::Came;

/// One thing that is done by itself.
#[derive(Debug)]
pub struct Job {
    /// Its name in rows, locks and metrics: `a-z`, `0-9` and dashes.
    pub name: &'static str,
    pub about: &'static str,
    /// When, as cron says it, in UTC; a job without a timetable is run when it is offered a time.
    pub timetable: Option<&'static str>,
    /// A run that takes longer is cancelled, and has failed.
    pub at_most_for: Duration,
    /// The lock is kept so long from the run's beginning, however short it was: the row makes it
    /// once, and this keeps whoever is late from even looking.
    pub at_least_for: Duration,
    /// Does all that is to be done, and says what that was. It may be dropped at any await, and
    /// called again after it was done.
    pub run_once: fn(Turn) -> BoxFuture<'static, anyhow::Result<Value>>,
}

pub static JOBS: [&Job; 4] = [&reconcile::JOB, &purge::JOB, &unpaid::sweep::JOB, &lab_tick::JOB];

/// A job's turn: what one attempt is told.
#[derive(Debug, Clone)]
pub struct Turn {
    pub shop: Shop,
    /// The tick it is done for.
    pub due_at: OffsetDateTime,
    /// Which attempt, from 1.
    pub attempt: i32,
    pub fence: Option<i64>,
    pub replica: String,
    /// Whether a row sees to it that this tick is run once.
    pub is_kept: bool,
    /// Points that the lab may hold it at.
    pub probe: Probe,
}

/// What makes a tick run once. The scheduler always uses the last; the others are for the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once {
    /// Nothing: every replica runs it.
    Nothing,
    /// A lock, given back when it is done.
    Lock,
    /// The same lock, and a row of that name and time.
    LockAndRow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_can_be_read_and_has_time_to_end() {
        for (at, job) in JOBS.iter().enumerate() {
            let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            assert!(!job.name.is_empty() && job.name.bytes().all(fits), "{}", job.name);
            assert!(JOBS[..at].iter().all(|other| other.name != job.name), "{}", job.name);
            assert!(job.about.ends_with('.'), "{}", job.name);
            assert!(job.at_least_for < job.at_most_for, "{}", job.name);
            if let Some(timetable) = job.timetable {
                timetable::Timetable::read(timetable).expect(job.name);
            }
        }
    }
}
