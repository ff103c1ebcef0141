//! Purges old stored responses, ended sessions, old runs of jobs and marks of the lab.
//!
//! Guarantees: every statement is a transaction of its own, bounded by rows or by blocks, so it
//! holds row locks briefly, stays far below the statement timeout, and an interrupted run keeps its
//! progress. No statement reads all of a table that grows forever: key records are found by
//! [`super::scan`], the rest from one end of an index. If a kind fails, the other kinds are purged
//! all the same; the run then fails and names the kind and the cause.
//!
//! A run is bounded by time, not by rows: it keeps up with the shop as long as Postgres deletes
//! faster than it inserts.
//!
//! An order's key record stays, without its response; all other key records are deleted: see
//! [`crate::shop::store::purge`]. Tests: `tests/it/purge.rs`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::block_scan::BlockScan;
use super::{Job, JobContext, lab_tick, store};
use crate::db::Pool;
use crate::shop::store::purge;
use crate::shop::{Error, users};

/// Days for which the row of a run is kept.
pub const RUNS_KEPT_DAYS: i32 = 30;
const KINDS: u32 = 5;

pub const NAME: &str = "purge";

pub(super) const JOB: Job = Job {
    name: NAME,
    about: "Deletes what is kept for a time only: answers to requests, for a day; sessions, until they \
            are over; runs of these jobs, for a month.",
    cron: Some("23 * * * *"),
    timeout: Duration::from_mins(5),
    min_lock_time: Duration::from_secs(5),
    run_once: |context| Box::pin(run_once(context)),
};

/// Bounds of a statement and of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeLimits {
    /// Rows per statement, where rows are found by an index.
    pub rows_per_statement: i64,
    /// Blocks per statement, where a table is scanned.
    pub blocks_per_statement: i64,
    /// Minimum number of blocks that a run scans, if the table has them: a small shop's whole
    /// table.
    pub min_blocks_per_run: i64,
    /// Upper bound of the runs that a scan of the whole table takes, however large it is.
    pub runs_per_scan: i64,
    /// Time for each kind; a kind leaves unused time to the next ones.
    pub time_per_kind: Duration,
}

impl Default for PurgeLimits {
    /// 256 blocks are 2 MB and at most a few thousand rows: milliseconds, or a second from a slow
    /// disk. 64 MB are read quickly and hold the keys of a hundred thousand orders. A scan of the
    /// table takes a day of hourly runs, and a response is kept for a day: so keys of at most two
    /// days exist, and rows that stay forever are read once a day, not once an hour.
    fn default() -> Self {
        Self {
            rows_per_statement: 1_000,
            blocks_per_statement: 256,
            min_blocks_per_run: 8_192,
            runs_per_scan: 24,
            time_per_kind: Duration::from_secs(45),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeResult {
    /// Key records, except those of orders.
    pub keys: u64,
    /// Stored responses of orders, whose key records stay.
    pub answers: u64,
    pub sessions: u64,
    pub runs: u64,
    pub marks: u64,
    /// Blocks read to find key records and responses.
    #[serde(default)]
    pub blocks: u64,
    /// True if the run had time for all of its share.
    pub all: bool,
    /// Kinds that were not purged, or only in part; with any of these the run fails.
    #[serde(skip)]
    pub failed: Vec<PurgeFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeFailure {
    pub kind: &'static str,
    pub cause: String,
}

/// Purges all kinds. An error names the kinds that failed; the others are purged.
pub async fn run_once(context: JobContext) -> anyhow::Result<Value> {
    let result = purge(&context.shop.pool, &PurgeLimits::default()).await;
    if let Some(message) = result.error_message() {
        bail!(message);
    }
    serde_json::to_value(result).context("what was purged")
}

impl PurgeResult {
    pub fn error_message(&self) -> Option<String> {
        if self.failed.is_empty() {
            return None;
        }
        let mut message = String::new();
        for PurgeFailure { kind, cause } in &self.failed {
            let _ = write!(message, "{kind}: {cause}; ");
        }
        let Self { keys, answers, sessions, runs, marks, .. } = self;
        let _ = write!(
            message,
            "forgotten nevertheless: keys {keys}, answers {answers}, sessions {sessions}, \
             runs {runs}, marks {marks}"
        );
        Some(message)
    }
}

/// Purges within these limits; reports failures in the result. Safe to drop and call again.
pub async fn purge(pool: &Pool, limits: &PurgeLimits) -> PurgeResult {
    let began = Instant::now();
    let until = |kind: u32| began + limits.time_per_kind * kind;
    let PurgeResult {
        mut keys, mut answers, mut sessions, mut runs, mut marks, mut blocks, ..
    } = PurgeResult::default();
    let scan = |kind, number| BlockScan { kind, pool, limits, until: until(number) };
    let records = |blocks, before| purge::purge_records(pool, blocks, before);
    let bodies = |blocks, before| purge::purge_bodies(pool, blocks, before);
    // The small kinds first; orders, which have the most records, get the remaining time.
    let ended: [(&'static str, Result<bool, Error>); KINDS as usize] = [
        (
            "marks",
            batches(&mut marks, until(1), || lab_tick::delete_old(pool, limits.rows_per_statement))
                .await,
        ),
        (
            "runs",
            batches(&mut runs, until(2), || {
                store::delete_old(pool, RUNS_KEPT_DAYS, limits.rows_per_statement)
            })
            .await,
        ),
        (
            "sessions",
            batches(&mut sessions, until(3), || {
                users::purge_sessions(pool, limits.rows_per_statement)
            })
            .await,
        ),
        ("keys", scan("keys", 4).run(&mut keys, &mut blocks, records).await),
        ("answers", scan("answers", KINDS).run(&mut answers, &mut blocks, bodies).await),
    ];
    let mut result =
        PurgeResult { keys, answers, sessions, runs, marks, blocks, all: true, failed: Vec::new() };
    for (kind, ended) in ended {
        result.all &= matches!(ended, Ok(true));
        if let Err(error) = ended {
            result.failed.push(PurgeFailure { kind, cause: error.to_string() });
        }
    }
    result
}

/// Repeats a statement until it affects no rows or the time is up; returns whether no rows are
/// left. `rows` counts the affected rows, also before an error.
async fn batches<F>(
    rows: &mut u64,
    until: Instant,
    statement: impl Fn() -> F,
) -> Result<bool, Error>
where
    F: Future<Output = Result<u64, Error>>,
{
    loop {
        let more = statement().await?;
        *rows += more;
        if more == 0 || Instant::now() >= until {
            return Ok(more == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_fit_into_the_job_timeout() {
        // A statement may start at the last moment and take until its timeout; acquiring a
        // connection and the position of the scan come on top.
        let after_the_last_moment = Duration::from_secs(4) * 3;
        let longest = (PurgeLimits::default().time_per_kind + after_the_last_moment) * KINDS;
        assert!(longest < JOB.timeout, "{longest:?}");
    }

    #[test]
    fn error_lists_failures_and_completed_work() {
        assert_eq!(
            PurgeResult { keys: 1, all: true, ..PurgeResult::default() }.error_message(),
            None
        );
        let failed = vec![PurgeFailure { kind: "sessions", cause: "no such table".to_owned() }];
        let purged = PurgeResult { keys: 3, failed, ..PurgeResult::default() };
        assert_eq!(
            purged.error_message().unwrap(),
            "sessions: no such table; forgotten nevertheless: keys 3, answers 0, sessions 0, \
             runs 0, marks 0"
        );
    }
}
