//! The job `purge`: deletes old stored responses, ended sessions, old runs of jobs, records of
//! failed expiries, and old items and marks of the lab.
//!
//! Guarantees: every statement is a transaction of its own, bounded by rows or by blocks, so it
//! holds row locks briefly, and an interrupted run keeps its progress. No statement reads all of a
//! table that grows forever. If a kind fails, the other kinds are purged all the same; the run then
//! fails and names the kind and the cause. A run is bounded by time, not by rows: it keeps up with
//! the shop as long as Postgres deletes faster than it inserts.
//!
//! Key records ([`crate::shop::store::purge`]) are scanned in blocks: a run scans a part of the
//! table, and the next run continues. A row that becomes old behind the position, or that two
//! concurrent scans skip, is found by the next scan. Postgres 14 or later is needed: without a TID
//! range scan each statement reads the whole table. Tests: `tests/it/purge.rs`.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::job::{Job, JobContext};
use super::order_expiry::failures;
use super::{lab_tick, store};
use crate::db::Pool;
use crate::shop::store::{lab_items_between, oldest_kept, purge, purge_lab_item};
use crate::shop::{Error, sessions};

/// Days for which the row of a run is kept.
pub const RUNS_KEPT_DAYS: i32 = 30;
/// Days after which an item of the lab is deleted, with its orders.
const LAB_ITEMS_KEPT_DAYS: u64 = 30;
const KINDS: u32 = 7;

pub(super) const JOB: Job = Job {
    name: "purge",
    about: "Deletes data that is kept for a limited time: stored responses for a day, sessions until \
            they expire, job runs and items of the lab for a month.",
    cron: Some("23 * * * *"),
    timeout: Duration::from_mins(5),
    work: |context| Box::pin(work(context)),
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
            time_per_kind: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PurgeResult {
    /// Key records, except those of orders.
    pub keys: u64,
    /// Stored responses of orders, whose key records stay.
    pub responses: u64,
    pub sessions: u64,
    pub runs: u64,
    pub marks: u64,
    /// Failed expiries of orders that have expired since, or were paid or cancelled.
    pub forgotten: u64,
    /// Items of the lab, with their orders.
    pub lab_items: u64,
    /// Blocks read to find key records and responses.
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
pub async fn work(context: JobContext) -> anyhow::Result<Value> {
    let result = purge(&context.shop.pool, &PurgeLimits::default()).await;
    if !result.failed.is_empty() {
        bail!(result.error_message());
    }
    serde_json::to_value(result).context("the result of the purge")
}

impl PurgeResult {
    fn error_message(&self) -> String {
        let mut message = String::new();
        for PurgeFailure { kind, cause } in &self.failed {
            let _ = write!(message, "{kind}: {cause}; ");
        }
        let Self { keys, responses, sessions, runs, marks, forgotten, lab_items, .. } = self;
        let _ = write!(
            message,
            "purged: keys {keys}, responses {responses}, sessions {sessions}, runs {runs}, \
             marks {marks}, failures {forgotten}, lab_items {lab_items}"
        );
        message
    }
}

/// Purges within these limits; reports failures in the result. Safe to drop and call again.
pub async fn purge(pool: &Pool, limits: &PurgeLimits) -> PurgeResult {
    let began = Instant::now();
    let until = |kind: u32| began + limits.time_per_kind * kind;
    let rows = limits.rows_per_statement;
    let mut result = PurgeResult { all: true, ..PurgeResult::default() };
    let blocks = &mut result.blocks;
    // The small kinds first; orders, which have the most records, get the remaining time. Key
    // records are scanned twice: deleting needs no disk space, and must continue when removing
    // responses fails for lack of it. The second scan finds the blocks in memory.
    let marks = || lab_tick::delete_old(pool, rows);
    let marks = delete_all(&mut result.marks, until(1), marks).await;
    let runs = || store::delete_old(pool, RUNS_KEPT_DAYS, rows);
    let runs = delete_all(&mut result.runs, until(2), runs).await;
    let sessions = || sessions::purge(pool, rows);
    let sessions = delete_all(&mut result.sessions, until(3), sessions).await;
    let failures = || failures::delete_obsolete(pool, rows);
    let failures = delete_all(&mut result.forgotten, until(4), failures).await;
    let lab_items = purge_lab_items(pool, &mut result.lab_items, until(5), rows).await;
    let keys = BlockScan { kind: "keys", pool, limits, until: until(6) };
    let records = |blocks, before| purge::purge_records(pool, blocks, before);
    let keys = keys.run(&mut result.keys, blocks, records).await;
    let responses = BlockScan { kind: "responses", pool, limits, until: until(KINDS) };
    let bodies = |blocks, before| purge::purge_bodies(pool, blocks, before);
    let responses = responses.run(&mut result.responses, blocks, bodies).await;
    let ended: [(&'static str, Result<bool, Error>); KINDS as usize] = [
        ("marks", marks),
        ("runs", runs),
        ("sessions", sessions),
        ("failures", failures),
        ("lab_items", lab_items),
        ("keys", keys),
        ("responses", responses),
    ];
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
async fn delete_all<F>(
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

/// Deletes old items of the lab until the time is up; returns whether all were looked at.
async fn purge_lab_items(
    pool: &Pool,
    deleted: &mut u64,
    until: Instant,
    rows: i64,
) -> Result<bool, Error> {
    let before = oldest_kept(Duration::from_hours(24 * LAB_ITEMS_KEPT_DAYS));
    let mut after = "lab-".to_owned();
    let mut failed = None;
    loop {
        let items = lab_items_between(pool, &after, &before, rows).await?;
        let Some(last) = items.last() else { break };
        last.as_str().clone_into(&mut after);
        for sku in items {
            if Instant::now() >= until {
                return failed.map_or(Ok(false), Err);
            }
            match purge_lab_item(pool, &sku, &before).await {
                Ok(was_deleted) => *deleted += u64::from(was_deleted),
                // One item with too many orders for a statement's time keeps no other.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }
    failed.map_or(Ok(true), Err)
}

/// One part of a scan of the key records. Each kind has its own position.
struct BlockScan<'a> {
    /// The purged kind; its position is stored under this name.
    kind: &'static str,
    pool: &'a Pool,
    limits: &'a PurgeLimits,
    /// No statement but the first is started after this time.
    until: Instant,
}

impl BlockScan<'_> {
    /// Executes `statement` for each range of blocks of the next part, with the time before which
    /// rows may be purged; returns whether the part is done. `rows` and `read` count rows and
    /// blocks, also before an error.
    async fn run<F>(
        &self,
        rows: &mut u64,
        read: &mut u64,
        statement: impl Fn(Range<i64>, OffsetDateTime) -> F,
    ) -> Result<bool, Error>
    where
        F: Future<Output = Result<u64, Error>>,
    {
        let (blocks, before) = purge::purge_bounds(self.pool).await?;
        let position =
            sqlx::query_scalar!("select next_block from purge_walks where kind = $1", self.kind)
                .fetch_optional(&mut *self.pool.acquire().await?)
                .await?;
        let mut part = next_part(position.unwrap_or(0), blocks, self.limits);
        while !part.is_empty() {
            let end = part.end.min(part.start + self.limits.blocks_per_statement);
            *rows += statement(part.start..end, before).await?;
            *read += (end - part.start).unsigned_abs();
            sqlx::query!(
                "insert into purge_walks (kind, next_block) values ($1, $2)
                 on conflict (kind) do update set next_block = excluded.next_block",
                self.kind,
                end,
            )
            .execute(&mut *self.pool.acquire().await?)
            .await?;
            part.start = end;
            if Instant::now() >= self.until {
                break;
            }
        }
        Ok(part.is_empty())
    }
}

/// Returns the next part: from `position` on, or from the start if `position` is the end or beyond
/// it because the table shrank.
fn next_part(position: i64, blocks: i64, limits: &PurgeLimits) -> Range<i64> {
    // Rounded up, so that this many runs scan the whole table.
    let share = (blocks + limits.runs_per_scan - 1) / limits.runs_per_scan;
    let from = if position >= blocks { 0 } else { position };
    from..blocks.min(from + share.max(limits.min_blocks_per_run))
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
        let failed = vec![PurgeFailure { kind: "sessions", cause: "no such table".to_owned() }];
        let purged = PurgeResult { keys: 3, failed, ..PurgeResult::default() };
        assert_eq!(
            purged.error_message(),
            "sessions: no such table; purged: keys 3, responses 0, sessions 0, runs 0, marks 0, \
             failures 0, lab_items 0"
        );
    }

    #[test]
    fn scan_covers_all_blocks_within_its_runs() {
        let limits =
            PurgeLimits { min_blocks_per_run: 10, runs_per_scan: 24, ..PurgeLimits::default() };
        for blocks in [0, 1, 9, 10, 11, 239, 240, 241, 999, 1_000_003] {
            let (mut next, mut seen, mut runs) = (0, 0, 0);
            while seen < blocks {
                let part = next_part(next, blocks, &limits);
                assert_eq!(part.start, seen, "{blocks}: no gap");
                assert!(part.end - part.start <= (blocks / 24 + 1).max(10), "{blocks}: {part:?}");
                (next, seen, runs) = (part.end, part.end, runs + 1);
            }
            assert!(runs <= 24, "{blocks}: {runs}");
            assert_eq!(next_part(next, blocks, &limits).start, 0, "{blocks}: it begins anew");
        }
    }

    #[test]
    fn truncated_table_is_scanned_from_its_start() {
        let limits = PurgeLimits { min_blocks_per_run: 10, ..PurgeLimits::default() };
        assert_eq!(next_part(500, 8, &limits), 0..8);
        assert_eq!(next_part(500, 0, &limits), 0..0);
    }
}
