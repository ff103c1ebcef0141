//! What the lab's probes see of a batch: the points that it passes, and what happens between them.
//! For most batches there is none.

use futures_util::future::join_all;
use holdfast_lock::{LockKey, clock};

use super::decide::values;
use super::entry::BatchEntry;
use crate::engine::lease::locks::AcquiredLocks;
use crate::probe::{Point, Probe, ProbedValue};
use crate::store::BatchWrite;

/// Passes a probe point for each entry that the lab watches: all at one time, as they do.
pub async fn pass_point<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    point: Point,
    locks: &AcquiredLocks,
    value: impl Fn(usize, &LockKey) -> Option<i64>,
) {
    let mut watched = watched(entries).peekable();
    if watched.peek().is_none() {
        return;
    }
    let at_us = clock::monotonic_us();
    let passes = watched.map(|(at, entry)| {
        let seen = seen(entry, locks, |key| value(at, key));
        async move { entry.context.probe().at_since(point, at_us, seen).await }
    });
    join_all(passes).await;
}

/// Passes the point behind a commit, with the number of commands that share it, if several do.
pub async fn pass_committed<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    locks: &AcquiredLocks,
    write: &BatchWrite,
) {
    let commands = i64::try_from(write.commands.len()).ok().filter(|commands| *commands > 1);
    pass_point(entries, Point::Committed, locks, |_, _| commands).await;
}

pub async fn pass_written<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    locks: &AcquiredLocks,
    write: &BatchWrite,
) {
    pass_point(entries, Point::Write, locks, |at, key| value_after(write, at, key)).await;
}

/// Notes that Postgres rejected the write: none of these values is stored.
pub fn note_refused<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    locks: &AcquiredLocks,
    write: &BatchWrite,
) {
    for (at, entry) in watched(entries) {
        let seen = seen(entry, locks, |key| value_after(write, at, key));
        entry.context.probe().note("refused", seen);
    }
}

/// Notes the rows whose fences are higher than those of the locks.
pub fn note_stale<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    locks: &AcquiredLocks,
    rows: &[(LockKey, i64)],
) {
    for (_, entry) in watched(entries) {
        let fence =
            |key: &LockKey| rows.iter().find(|(row, _)| row == key).map(|(_, fence)| *fence);
        let seen = seen(entry, locks, fence).into_iter().filter(|seen| seen.value.is_some());
        entry.context.probe().note("stale", seen);
    }
}

fn watched<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
) -> impl Iterator<Item = (usize, BatchEntry<'e>)> {
    entries.filter(|(_, entry)| matches!(entry.context.probe(), Probe::Lab(_)))
}

fn seen(
    entry: BatchEntry<'_>,
    locks: &AcquiredLocks,
    value: impl Fn(&LockKey) -> Option<i64>,
) -> Vec<ProbedValue> {
    let keys = entry.command.reads().lock_keys().into_iter();
    keys.map(|key| ProbedValue {
        key: key.as_str().to_owned(),
        value: value(&key),
        fence: locks.guards.fence(&key),
    })
    .collect()
}

/// Returns the value of `key` after the changes of the command at this position.
fn value_after(write: &BatchWrite, at: usize, key: &LockKey) -> Option<i64> {
    let command = write.commands.iter().find(|command| command.position == at)?;
    values(&command.changes, key).map(|(_, after)| after)
}
