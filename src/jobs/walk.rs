//! A table that grows for ever is looked through without being read whole: a stretch of its blocks
//! per statement, a part of the table per run, and on from there the next time.
//!
//! Guarantees: a statement reads so many blocks and no more, whatever is in them, so it is short; a
//! run reads the part that is its, however many rows stay for ever; after so many runs the whole
//! table was looked through once, however large it is, so what is forgotten keeps up with what
//! comes in. How far it came is written after each statement: a run that is cut off, or that fails
//! elsewhere, goes on and not back.
//!
//! Does not guarantee that a row is seen in the walk in which it grows old: it may lie behind. The
//! next walk sees it. Two walkers at once (a holder that was followed and comes back) may have a
//! stretch read twice, or skipped until the next walk; nothing else.
//!
//! What breaks it: a Postgres older than 14, which has no TID range scan and reads the whole table
//! for each stretch; a run that never has the time for its part, which it says (`all` is false).

use std::ops::Range;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::purge::Pace;
use crate::db::Pool;
use crate::shop::Error;
use crate::shop::store::purge::reach;

/// One part of a walk through the key records. Each kind walks by itself, and stands where it
/// stands: deleting needs no room on the disk, and must go on where emptying rows fails for want of
/// it. The second one finds the blocks in memory.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    /// What is walked for; where it stands is remembered under that name.
    pub(super) kind: &'static str,
    pub(super) pool: &'a Pool,
    /// How large the parts are.
    pub(super) pace: &'a Pace,
    /// No stretch is begun after this, but the first one.
    pub(super) until: Instant,
}

impl Walk<'_> {
    /// Walks the part whose turn it is, with what may be purged of rows from before a moment;
    /// whether there was time for all of it. `rows` and `read` count rows and blocks, also those
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

/// The part whose turn it is: from `next` on; from the start where that is the end, or lies behind
/// it because the table was cut short meanwhile.
fn part(next: i64, blocks: i64, pace: &Pace) -> Range<i64> {
    // Rounded up: as many runs as that see all there is.
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
    fn a_walk_sees_every_block_in_as_many_runs_as_it_may_take() {
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
    fn a_table_that_was_cut_short_is_walked_from_its_start() {
        let pace = Pace { at_least: 10, ..Pace::default() };
        assert_eq!(part(500, 8, &pace), 0..8);
        assert_eq!(part(500, 0, &pace), 0..0);
    }
}
