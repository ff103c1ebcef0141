//! Scans an ever-growing table in parts: a range of blocks per statement, a part of the table per
//! run, continued by the next run.
//!
//! Guarantees: a statement reads a bounded number of blocks, so it is short; a run reads its part
//! only, however many rows stay forever; after a bounded number of runs the whole table was
//! scanned, so purging keeps up with inserts. The position is written after each statement: the
//! next run continues after an interruption or a failure elsewhere.
//!
//! Does not guarantee that a row is purged by the scan during which it becomes old: its block may
//! already be scanned; the next scan finds it. Two concurrent scans (a holder whose run was taken
//! over resumes) may read a block twice or leave it to the next scan.
//!
//! Fails with a Postgres older than 14: without a TID range scan it reads the whole table for each
//! statement. A run that never has time for its part reports this (`all` is false).

use std::ops::Range;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::purge::PurgeLimits;
use crate::db::Pool;
use crate::shop::Error;
use crate::shop::store::purge::purge_bounds;

/// One part of a scan of the key records. Each kind has its own scan and position: deleting needs
/// no disk space, and must continue when emptying rows fails for lack of it. The second scan finds
/// the blocks in memory.
#[derive(Debug, Clone)]
pub(super) struct BlockScan<'a> {
    /// The purged kind; its position is stored under this name.
    pub(super) kind: &'static str,
    pub(super) pool: &'a Pool,
    pub(super) limits: &'a PurgeLimits,
    /// No statement but the first is started after this time.
    pub(super) until: Instant,
}

impl BlockScan<'_> {
    /// Executes `statement` for each range of blocks of the next part, with the time before which
    /// rows may be purged; returns whether the part is done. `rows` and `read` count rows and
    /// blocks, also before an error.
    pub(super) async fn run<F>(
        &self,
        rows: &mut u64,
        read: &mut u64,
        statement: impl Fn(Range<i64>, OffsetDateTime) -> F,
    ) -> Result<bool, Error>
    where
        F: Future<Output = Result<u64, Error>>,
    {
        let (blocks, before) = purge_bounds(self.pool).await?;
        let position = load_position(self.pool, self.kind).await?;
        let mut part = next_part(position, blocks, self.limits);
        while !part.is_empty() {
            let end = part.end.min(part.start + self.limits.blocks_per_statement);
            *rows += statement(part.start..end, before).await?;
            *read += (end - part.start).unsigned_abs();
            save_position(self.pool, self.kind, end).await?;
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

async fn load_position(pool: &Pool, kind: &str) -> Result<i64, Error> {
    let next = sqlx::query_scalar!("select next_block from purge_walks where kind = $1", kind);
    Ok(next.fetch_optional(&mut *pool.acquire().await?).await?.unwrap_or(0))
}

async fn save_position(pool: &Pool, kind: &str, block: i64) -> Result<(), Error> {
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
