//! Scans an ever-growing table in parts: a stretch of blocks per statement, a part of the table per
//! run, continued by the next run.
//!
//! Guarantees: a statement reads a bounded number of blocks, so it is short; a run reads its part
//! only, however many rows stay forever; after a bounded number of runs the whole table was
//! scanned, so purging keeps up with inserts. The position is written after each statement: the
//! next run continues after an interruption or a failure elsewhere.
//!
//! Does not guarantee that a row is purged by the scan during which it becomes old: its block may
//! already be scanned; the next scan finds it. Two concurrent scans (a holder whose run was taken
//! over resumes) may read a stretch twice or leave it to the next scan.
//!
//! Fails with a Postgres older than 14: without a TID range scan it reads the whole table for each
//! stretch. A run that never has time for its part reports this (`all` is false).

use std::ops::Range;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::purge::Pace;
use crate::db::Pool;
use crate::shop::Error;
use crate::shop::store::purge::reach;

/// One part of a scan of the key records. Each kind has its own scan and position: deleting needs
/// no disk space, and must continue when emptying rows fails for lack of it. The second scan finds
/// the blocks in memory.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    /// The purged kind; its position is stored under this name.
    pub(super) kind: &'static str,
    pub(super) pool: &'a Pool,
    /// Sizes of the parts.
    pub(super) pace: &'a Pace,
    /// No stretch but the first is started after this time.
    pub(super) until: Instant,
}

impl Walk<'_> {
    /// Executes `statement` for each stretch of the next part, with the time before which rows may
    /// be purged; returns whether the part is done. `rows` and `read` count rows and blocks, also
    /// before an error.
    pub(super) async fn on<F>(
        &self,
        rows: &mut u64,
        read: &mut u64,
        statement: impl Fn(Range<i64>, OffsetDateTime) -> F,
    ) -> Result<bool, Error>
    where
        F: Future<Output = Result<u64, Error>>,
    {
        let (blocks, before) = reach(self.pool).await?;
        let mut part = part(next(self.pool, self.kind).await?, blocks, self.pace);
        while !part.is_empty() {
            let end = part.end.min(part.start + self.pace.stretch);
            *rows += statement(part.start..end, before).await?;
            *read += (end - part.start).unsigned_abs();
            came_to(self.pool, self.kind, end).await?;
            part.start = end;
            if Instant::now() >= self.until {
                break;
            }
        }
        Ok(part.is_empty())
    }
}

/// Returns the next part: from `next` on, or from the start if `next` is the end or lies beyond it
/// because the table shrank.
fn part(next: i64, blocks: i64, pace: &Pace) -> Range<i64> {
    // Rounded up, so that this many runs scan the whole table.
    let share = (blocks + pace.runs_per_walk - 1) / pace.runs_per_walk;
    let from = if next >= blocks { 0 } else { next };
    from..blocks.min(from + share.max(pace.at_least))
}

async fn next(pool: &Pool, kind: &str) -> Result<i64, Error> {
    let next = sqlx::query_scalar!("select next_block from purge_walks where kind = $1", kind);
    Ok(next.fetch_optional(&mut *pool.acquire().await?).await?.unwrap_or(0))
}

async fn came_to(pool: &Pool, kind: &str, block: i64) -> Result<(), Error> {
    sqlx::query!(
        "insert into purge_walks (kind, next_block) values ($1, $2)
         on conflict (kind) do update set next_block = excluded.next_block",
        kind,
        block,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_covers_all_blocks_within_its_runs() {
        let pace = Pace { at_least: 10, runs_per_walk: 24, ..Pace::default() };
        for blocks in [0, 1, 9, 10, 11, 239, 240, 241, 999, 1_000_003] {
            let (mut next, mut seen, mut runs) = (0, 0, 0);
            while seen < blocks {
                let part = part(next, blocks, &pace);
                assert_eq!(part.start, seen, "{blocks}: no gap");
                assert!(part.end - part.start <= (blocks / 24 + 1).max(10), "{blocks}: {part:?}");
                (next, seen, runs) = (part.end, part.end, runs + 1);
            }
            assert!(runs <= 24, "{blocks}: {runs}");
            assert_eq!(part(next, blocks, &pace).start, 0, "{blocks}: it begins anew");
        }
    }

    #[test]
    fn truncated_table_is_scanned_from_its_start() {
        let pace = Pace { at_least: 10, ..Pace::default() };
        assert_eq!(part(500, 8, &pace), 0..8);
        assert_eq!(part(500, 0, &pace), 0..0);
    }
}
