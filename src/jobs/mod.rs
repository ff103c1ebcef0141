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

pub mod audit;
pub mod cron;
pub mod history;
pub mod lab_tick;
pub mod order_expiry;
pub mod purge;
pub mod scheduler;
pub mod status;
pub mod store;

mod execute;
mod job;
mod outcome;

pub use job::{Job, JobContext, OncePolicy};
pub use outcome::RunOutcome;
pub use scheduler::Scheduler;

pub static JOBS: &[&Job] = &[&audit::JOB, &purge::JOB, &lab_tick::JOB];

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
            assert_eq!(cron::Schedule::of(job).is_some(), job.cron.is_some(), "{}", job.name);
        }
    }
}
