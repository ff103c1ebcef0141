//! Scheduled jobs (this module and its siblings), order expiry ([`order_expiry`]).
//!
//! Every replica has a scheduler ([`scheduler`]) and sees every tick. A single replica runs it:
//! - **the row** (`job_runs`, unique by job and due time) records that the tick was started;
//! - **the lock** (`fenced`, `job:NAME`) separates replicas; its lease expires if its holder dies;
//! - **the fence** is in the row: the result of a holder whose run was taken over is a stale write.
//!
//! Guarantees: one run per job and tick, one open run per job; a run that fails, panics or hangs is
//! retried with a growing backoff, then parked, shown on `/jobs`, and retried once at every tick.
//!
//! Does not guarantee that the *work* of a run is done once: its holder may die after the work and
//! before the row is updated. So a job is idempotent, or its effect is identified by job and tick
//! ([`lab_tick`]). A job that never awaits is not stopped. Tests: `tests/it/jobs.rs`,
//! `jobs_replicas.rs`.

pub mod cron;
pub mod history;
pub mod lab_tick;
pub mod order_expiry;
pub mod purge;
pub mod reconcile;
pub mod scheduler;
pub mod status;
pub mod store;

mod block_scan;
mod execute;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::probe::Probe;
use crate::shop::Shop;

pub use execute::RunOutcome;
pub use scheduler::Scheduler;

/// A scheduled job.
#[derive(Debug)]
pub struct Job {
    /// Name in rows, locks and metrics: `a-z`, `0-9` and dashes.
    pub name: &'static str,
    pub about: &'static str,
    /// Cron expression, in UTC; a job without one runs only at ticks it is offered.
    pub cron: Option<&'static str>,
    /// Timeout of a run: a longer run is cancelled and has failed.
    pub timeout: Duration,
    /// Minimum time for which the lock is held after it was acquired. The row already makes the
    /// tick run once; this keeps late replicas from reading it.
    pub min_lock_time: Duration,
    /// Does all outstanding work and returns a summary. It may be dropped at any await, and called
    /// again after it completed.
    pub run_once: fn(JobContext) -> BoxFuture<'static, anyhow::Result<Value>>,
}

pub static JOBS: [&Job; 4] =
    [&reconcile::JOB, &purge::JOB, &order_expiry::reconcile_queue::JOB, &lab_tick::JOB];

/// The context of one attempt, passed to the job.
#[derive(Debug, Clone)]
pub struct JobContext {
    pub shop: Shop,
    /// The tick for which the job runs.
    pub due_at: OffsetDateTime,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    pub fence: Option<i64>,
    pub replica: String,
    /// True if a row ensures that this tick runs once.
    pub has_row: bool,
    /// Points at which the lab can pause the run.
    pub probe: Probe,
}

/// The mechanism that makes a tick run once. The scheduler uses `LockAndRow`; the others are for
/// the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OncePolicy {
    /// None: every replica runs it.
    Nothing,
    /// A lock, released after the run.
    Lock,
    /// The same lock, and a row identified by job and tick.
    LockAndRow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_definition_is_valid() {
        for (at, job) in JOBS.iter().enumerate() {
            let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            assert!(!job.name.is_empty() && job.name.bytes().all(fits), "{}", job.name);
            assert!(JOBS[..at].iter().all(|other| other.name != job.name), "{}", job.name);
            assert!(job.about.ends_with('.'), "{}", job.name);
            assert!(job.min_lock_time < job.timeout, "{}", job.name);
            if let Some(expression) = job.cron {
                cron::CronSchedule::parse(expression).expect(job.name);
            }
        }
    }
}
