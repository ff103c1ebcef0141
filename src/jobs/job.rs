//! The definition of a scheduled job, and the context of its run.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::probe::Probe;
use crate::shop::Shop;

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
    /// Does all outstanding work and returns a summary. It may be dropped at any await, and called
    /// again after it completed.
    pub work: fn(JobContext) -> BoxFuture<'static, anyhow::Result<Value>>,
}

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
