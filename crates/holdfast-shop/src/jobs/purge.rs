//! The job `purge`: deletes old stored responses, ended sessions, old runs of jobs, records of
//! failed expiries, and old items and marks of the lab.
//!
//! Guarantees: every statement is a transaction of its own, bounded by rows or by blocks, so it
//! holds row locks briefly, and an interrupted run keeps its progress. No statement reads all of a
//! table that grows forever. If a kind fails, the other kinds are purged all the same; the run then
//! fails and names the kind and the cause. A run is bounded by time, not by rows.
//!
//! Key records ([`crate::store::purge`]) are scanned in blocks: a run scans a part of the
//! table, and the next run continues. Tests: `tests/it/purge.rs`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::bail;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::job::{Job, JobContext};
use super::order_expiry::failures;
use super::timetable::Timetable;
use super::{lab_tick, runs};
use crate::db::Pool;
use crate::store::{lab_items_between, oldest_kept, purge, purge_lab_item};
use crate::{Error, sessions};

const RUNS_KEPT_DAYS: i32 = 30;
/// Days after which an item of the lab is deleted, with its orders.
const LAB_ITEMS_KEPT_DAYS: u64 = 30;

pub(super) const JOB: Job = Job {
    name: "purge",
    timetable: Some(Timetable::hourly(23)),
    timeout: Duration::from_mins(5),
    work: |context| Box::pin(work(context)),
};

/// Bounds of a statement and of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeLimits {
    pub rows_per_statement: i64,
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
    /// disk. A scan of a large table takes a day of hourly runs, and a response is kept for a day:
    /// so keys of at most two days exist, and rows that stay forever are read once a day.
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
    /// Purged rows by kind; the `responses` are of orders, whose key records stay.
    #[serde(flatten)]
    pub purged: BTreeMap<&'static str, u64>,
    /// True if the run had time for all of its share.
    pub all: bool,
    /// Blocks read to find key records and responses.
    #[serde(skip)]
    pub blocks: u64,
    /// Kinds that were not purged, or only in part, with the cause; then the run fails.
    #[serde(skip)]
    pub failed: Vec<String>,
}

impl PurgeResult {
    fn add(&mut self, kind: &'static str, rows: u64) {
        if rows > 0 {
            *self.purged.entry(kind).or_default() += rows;
        }
    }

    fn end(&mut self, kind: &'static str, ended: Result<(), Error>) {
        if let Err(error) = ended {
            self.all = false;
            self.failed.push(format!("{kind}: {error}"));
        }
    }

    /// Repeats a statement until it affects no rows or the time is up.
    async fn repeat<F>(&mut self, kind: &'static str, until: Instant, statement: impl Fn() -> F)
    where
        F: Future<Output = Result<u64, Error>>,
    {
        loop {
            match statement().await {
                Ok(0) => return,
                Ok(rows) => self.add(kind, rows),
                Err(error) => return self.end(kind, Err(error)),
            }

            // After a statement, so that each kind makes progress even in a run without time.
            if Instant::now() >= until {
                self.all = false;
                return;
            }
        }
    }
}

/// Purges all kinds. An error names the kinds that failed; the others are purged.
pub async fn work(context: JobContext) -> anyhow::Result<Value> {
    let result = purge(&context.shop.pool, &PurgeLimits::default()).await;
    let purged = serde_json::to_value(&result)?;
    if !result.failed.is_empty() {
        bail!("{}; purged: {purged}", result.failed.join("; "));
    }
    Ok(purged)
}

/// Purges within these limits; reports failures in the result. Safe to drop and call again.
pub async fn purge(pool: &Pool, limits: &PurgeLimits) -> PurgeResult {
    let rows = limits.rows_per_statement;
    let mut result = PurgeResult { all: true, ..PurgeResult::default() };

    // The small kinds first; orders, which have the most records, get the remaining time.
    let mut until = Instant::now() + limits.time_per_kind;
    result.repeat("marks", until, || lab_tick::delete_old(pool, rows)).await;

    until += limits.time_per_kind;
    result.repeat("runs", until, || runs::delete_old(pool, RUNS_KEPT_DAYS, rows)).await;

    until += limits.time_per_kind;
    result.repeat("sessions", until, || sessions::purge(pool, rows)).await;

    until += limits.time_per_kind;
    result.repeat("failures", until, || failures::delete_obsolete(pool, rows)).await;

    until += limits.time_per_kind;
    let lab_items = purge_lab_items(pool, &mut result, until, rows).await;
    result.end("lab_items", lab_items);

    until += limits.time_per_kind;
    let keys = purge_keys(pool, &mut result, until, limits).await;
    result.end("keys", keys);
    result
}

async fn purge_lab_items(
    pool: &Pool,
    result: &mut PurgeResult,
    until: Instant,
    rows: i64,
) -> Result<(), Error> {
    let before = oldest_kept(Duration::from_hours(24 * LAB_ITEMS_KEPT_DAYS));
    let mut after = "lab-".to_owned();
    let mut ended = Ok(());
    loop {
        let items = lab_items_between(pool, &after, &before, rows).await?;
        let Some(last) = items.last() else { return ended };
        // Behind those that must stay, or the next read would find the same ones for ever.
        last.as_str().clone_into(&mut after);

        for sku in items {
            if Instant::now() >= until {
                result.all = false;
                return ended;
            }

            match purge_lab_item(pool, &sku, &before).await {
                Ok(was_deleted) => result.add("lab_items", was_deleted.into()),
                // One item with too many orders for a statement's time holds up no other.
                Err(error) => ended = ended.and(Err(error)),
            }
        }
    }
}

/// Purges the next part of the key records. The time limit stops no first statement.
async fn purge_keys(
    pool: &Pool,
    result: &mut PurgeResult,
    until: Instant,
    limits: &PurgeLimits,
) -> Result<(), Error> {
    let (blocks, before) = purge::purge_bounds(pool).await?;
    let position = sqlx::query_scalar!("select next_block from purge_walk")
        .fetch_optional(&mut *pool.acquire().await?)
        .await?
        .unwrap_or_default();

    let mut part = next_part(position, blocks, limits);
    let mut responses = Ok(());
    while !part.is_empty() {
        let end = part.end.min(part.start + limits.blocks_per_statement);
        result.add("keys", purge::purge_records(pool, part.start..end, before).await?);

        // Deleting needs no disk space, and continues when removing responses fails for lack of it;
        // the next scan finds these again.
        if responses.is_ok() {
            let removed = purge::purge_bodies(pool, part.start..end, before).await;
            responses = removed.map(|rows| result.add("responses", rows));
        }
        result.blocks += (end - part.start).unsigned_abs();

        // After each part: a run that is interrupted leaves no block out, and repeats one part.
        sqlx::query!(
            "insert into purge_walk (next_block) values ($1)
                 on conflict ((true)) do update set next_block = excluded.next_block",
            end
        )
        .execute(&mut *pool.acquire().await?)
        .await?;
        part.start = end;

        if Instant::now() >= until {
            break;
        }
    }

    result.all &= part.is_empty();
    result.end("responses", responses);
    Ok(())
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

    const KINDS: u32 = 6;

    #[test]
    fn all_kinds_fit_into_the_job_timeout() {
        // A statement may start at the last moment and take until its timeout; acquiring a
        // connection and the position of the scan come on top.
        let after_the_last_moment = Duration::from_secs(4) * 3;
        let longest = (PurgeLimits::default().time_per_kind + after_the_last_moment) * KINDS;
        assert!(longest < JOB.timeout, "{longest:?}");
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
