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

mod job;
mod scheduler;
mod timetable;

use holdfast_base::metrics::MetricDefinition;

pub use job::{Job, JobContext};
pub use runs::RunOutcome;
pub use scheduler::{JobStatus, JobsStatus, Scheduler};
pub use timetable::Timetable;

pub static JOBS: &[&Job] = &[&audit::JOB, &purge::JOB, &lab_tick::JOB];

/// The metrics that jobs and order expiry record.
pub fn metrics() -> impl Iterator<Item = &'static MetricDefinition> {
    [audit::METRICS, scheduler::METRICS, order_expiry::METRICS].into_iter().flatten()
}
