//! Scheduled jobs, and order expiry ([`order_expiry`]).
//!
//! Every replica has a [`Scheduler`], which sees every tick. A run is a row with a lease
//! ([`runs`]): one replica claims it, and another one takes it over if the lease ends.
//!
//! Does not guarantee that the *work* of a run is done once: its holder may die after the work and
//! before the row is updated. So a job is idempotent, or its effect is identified by job and tick
//! ([`lab_tick`]). A job that never awaits is not stopped. Tests: `tests/it/jobs.rs`,
//! `jobs_replicas.rs`.

pub mod audit;
pub mod lab_tick;
pub mod order_expiry;
pub mod purge;
pub mod runs;

mod scheduler;
mod timetable;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use time::OffsetDateTime;

use crate::probe::Probe;
use crate::shop::Shop;

pub use scheduler::{JobStatus, JobsStatus, RunOutcome, Scheduler};
pub use timetable::Timetable;

pub static JOBS: &[&Job] = &[&audit::JOB, &purge::JOB, &lab_tick::JOB];

#[derive(Debug)]
pub struct Job {
    /// Name in rows and metrics: `a-z`, `0-9` and dashes.
    pub name: &'static str,
    /// A job without one runs only at ticks it is offered.
    pub timetable: Option<Timetable>,
    /// A longer run is cancelled and has failed.
    pub timeout: Duration,
    /// Does all outstanding work and returns a summary. It may be dropped at any await, and called
    /// again after it completed.
    pub work: fn(JobContext) -> BoxFuture<'static, anyhow::Result<Value>>,
}

#[derive(Debug, Clone)]
pub struct JobContext {
    pub shop: Shop,
    pub due_at: OffsetDateTime,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    pub replica: String,
    /// Points at which the lab can pause the run.
    pub probe: Probe,
}
