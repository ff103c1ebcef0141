//! What a job is.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use time::OffsetDateTime;

use super::timetable::Timetable;
use crate::Shop;
use crate::probe::Probe;

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
