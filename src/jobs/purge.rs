//! What is kept for a time, and then not any more: stored answers, sessions that are over, old runs
//! of jobs, marks of the lab.
//!
//! Every statement takes so many rows at most, and is a transaction by itself: nobody waits long
//! for a row of it, and a run that is cut off has done what it has done. A run does so many
//! statements at most; what is left is the next one's.
//!
//! A key's answer may be forgotten, the key itself not: see [`idempotency::forget`].

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::{Job, Turn, history, lab_tick, store};
use crate::db::Pool;
use crate::shop::{Error, idempotency, users};

/// Rows per statement.
pub const BATCH: i64 = 1_000;
/// Statements per kind and run: 100,000 rows an hour.
pub const BATCHES: u32 = 100;
/// How long a run's row is remembered.
pub const RUNS_KEPT_DAYS: i32 = 30;

/// What it is called.
pub const NAME: &str = "purge";

pub(super) const JOB: Job = Job {
    name: NAME,
    about: "Forgets answers older than a day, sessions that are over, and runs older than a month.",
    timetable: Some("23 * * * *"),
    at_most_for: Duration::from_mins(5),
    at_least_for: Duration::from_secs(5),
    run_once: |turn| Box::pin(run_once(turn)),
};

/// What a run forgot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// Keys whose orders and top-ups remember them.
    pub keys: u64,
    /// Answers under keys that are kept.
    pub answers: u64,
    /// Sessions.
    pub sessions: u64,
    /// Runs of jobs.
    pub runs: u64,
    /// Marks of the lab.
    pub marks: u64,
    /// Whether that was all there was.
    pub all: bool,
    /// All answers from before then are forgotten.
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub answers_before: Option<OffsetDateTime>,
}

/// Forgets what may be forgotten.
///
/// # Errors
/// Postgres's; what was forgotten until then stays so.
pub async fn run_once(turn: Turn) -> anyhow::Result<Value> {
    let pool = &turn.shop.pool;
    let last = history::last_result(pool, NAME).await?;
    let last: Purged = last.and_then(|last| serde_json::from_value(last).ok()).unwrap_or_default();
    serde_json::to_value(purge(pool, last.answers_before).await?).context("what was purged")
}

/// The same; answers from before `from` were forgotten earlier.
///
/// # Errors
/// Postgres's.
pub async fn purge(pool: &Pool, from: Option<OffsetDateTime>) -> Result<Purged, Error> {
    let limit = idempotency::forget_before(pool).await?;
    let from = from.unwrap_or(OffsetDateTime::UNIX_EPOCH).min(limit);
    let (keys, all_keys) = batches(|| idempotency::forget(pool, limit, BATCH)).await?;
    let (answers, all_answers) =
        batches(|| idempotency::forget_answers(pool, from, limit, BATCH)).await?;
    let (sessions, all_sessions) = batches(|| users::forget_sessions(pool, BATCH)).await?;
    let (runs, all_runs) = batches(|| store::forget(pool, RUNS_KEPT_DAYS, BATCH)).await?;
    let (marks, all_marks) = batches(|| lab_tick::forget(pool, BATCH)).await?;
    Ok(Purged {
        keys,
        answers,
        sessions,
        runs,
        marks,
        all: all_keys && all_answers && all_sessions && all_runs && all_marks,
        answers_before: Some(if all_answers { limit } else { from }),
    })
}

/// As many statements as it takes, and no more than there may be; how many rows, and whether those
/// were all.
async fn batches<F>(statement: impl Fn() -> F) -> Result<(u64, bool), Error>
where
    F: Future<Output = Result<u64, Error>>,
{
    let mut rows = 0;
    for _ in 0..BATCHES {
        let more = statement().await?;
        rows += more;
        if more < BATCH.unsigned_abs() {
            return Ok((rows, true));
        }
    }
    Ok((rows, false))
}
