//! Writes the changes of one batch: sends one statement, which other batches may share, and
//! commits.

use std::sync::Arc;

use holdfast_lock::LockKey;

use super::batch::{AttemptError, Batch, BatchDecision, pass_point, values};
use super::entry::EntryResult;
use super::group_commit;
use super::locks::AcquiredLocks;
use super::session::DatabaseSession;
use crate::probe::Point;
use crate::shop::command::state::ShopState;
use crate::shop::failure::{Error, Failure};
use crate::shop::store::changed_rows::ChangedRows;
use crate::shop::store::{BatchWrite, WriteResult, read};
use crate::shop::strategy::Mistake;
use crate::shop::{Sku, UserId};

pub(super) async fn write(
    batch: Batch<'_>,
    mut session: DatabaseSession,
    locks: &mut AcquiredLocks,
    decided: BatchDecision,
) -> Result<Vec<EntryResult>, AttemptError> {
    let BatchDecision { before, after, writes, results } = decided;
    let exclusion = batch.strategy.exclusion(&locks.guards);
    let rows = ChangedRows::between(&before, &after, batch.strategy.guard, &exclusion)?;
    let write = Arc::new(BatchWrite { rows, now: before.now, commands: writes });
    let autocommit = matches!(session, DatabaseSession::Autocommit(_));
    if autocommit {
        let passed = pass_point(batch.written(&write), Point::Commit, locks, |_, _| None);
        batch.in_time(passed).await?;
        session.reopen(&batch.shop.pool).await?;
    }
    let sent = send(batch, &mut session, &write);
    let sent = if autocommit { sent.await } else { batch.in_time(sent).await? };
    match sent {
        Ok(WriteResult::Done) => {}
        Ok(WriteResult::RowChanged) => {
            session.end_without_commit().await;
            return Err(Error::Conflict("a row changed between read and write".to_owned()).into());
        }
        Err(Failure::Error(error @ Error::Unavailable { .. })) if autocommit => {
            return Err(AttemptError::UnknownOutcome(error, write, results));
        }
        Err(failure) => return Err(AttemptError::after(session, failure).await),
    }
    if autocommit {
        session.end_without_commit().await;
        let after = |at, key: &LockKey| value_after(&write, at, key);
        pass_point(batch.written(&write), Point::Write, locks, after).await;
    } else {
        match batch.in_time(before_commit(batch, &mut session, locks, before, &write)).await? {
            Ok(()) => {}
            Err(failure) => return Err(AttemptError::after(session, failure).await),
        }
        match session.commit().await {
            Ok(()) => {}
            Err(error @ (Error::Conflict(_) | Error::Postgres(..))) => return Err(error.into()),
            Err(error) => return Err(AttemptError::UnknownOutcome(error, write, results)),
        }
    }
    pass_point(batch.written(&write), Point::Committed, locks, |_, _| None).await;
    Ok(results)
}

async fn send(
    batch: Batch<'_>,
    session: &mut DatabaseSession,
    write: &Arc<BatchWrite>,
) -> Result<WriteResult, Failure> {
    // Only batches of a leader may: theirs is the only write of its key in this process.
    let shared =
        batch.entries.first().is_some_and(|entry| entry.options.batch_key(entry.command).is_some());
    match session {
        DatabaseSession::Autocommit(_) if shared => {
            let engine = &batch.shop.engine;
            let groups =
                if batch.is_in_lab() { &engine.lab_group_commit } else { &engine.group_commit };
            groups.write(session, write).await
        }
        DatabaseSession::Autocommit(_) => {
            group_commit::send(&batch.shop.pool, session, &[write]).await
        }
        DatabaseSession::Explicit(tx) => group_commit::write_batches(tx, &[write]).await,
    }
}

/// Checks the limits that the decision could not check, and releases the locks if they are released
/// before the commit.
async fn before_commit(
    batch: Batch<'_>,
    session: &mut DatabaseSession,
    locks: &mut AcquiredLocks,
    before: ShopState,
    write: &BatchWrite,
) -> Result<(), Failure> {
    let Batch { strategy, entries, .. } = batch;
    if !strategy.counts_with_read() {
        check_limits(batch, session, before, write).await?;
    }
    let after = |at, key: &LockKey| value_after(write, at, key);
    pass_point(batch.written(write), Point::Write, locks, after).await;
    if strategy.mistake == Some(Mistake::EarlyRelease)
        && let Some(entry) = entries.first()
    {
        locks.end(entry.options, false).await;
    }
    pass_point(batch.written(write), Point::Commit, locks, |_, _| None).await;
    Ok(())
}

/// Decides again with the customers' purchases, which are exact because the write has locked the
/// rows. Subtracts the units of this write, which the count includes. Fails with the first
/// rejection.
async fn check_limits(
    batch: Batch<'_>,
    session: &mut DatabaseSession,
    before: ShopState,
    write: &BatchWrite,
) -> Result<(), Failure> {
    let limited = before.items.iter().filter(|(_, item)| item.limit_per_user.is_some());
    let skus: Vec<&Sku> = limited.map(|(sku, _)| sku).collect();
    let buyers = batch.entries.iter().filter_map(|entry| entry.command.reads().buyer);
    let pairs: Vec<(Sku, UserId)> =
        buyers.flat_map(|user| skus.iter().map(move |sku| ((*sku).clone(), user))).collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let mut purchased = read::count_purchases(session.connection(), &pairs).await?;
    for new in write.orders() {
        for line in &new.order.lines {
            if let Some(count) = purchased.get_mut(&(line.sku.clone(), new.user)) {
                *count -= line.quantity;
            }
        }
    }
    let mut state = ShopState { purchased, ..before };
    for entry in batch.entries {
        entry.command.decide(&mut state)?;
    }
    Ok(())
}

fn value_after(write: &BatchWrite, position: usize, key: &LockKey) -> Option<i64> {
    let command = write.commands.iter().find(|command| command.position == position)?;
    values(&command.changes, key).map(|(_, after)| after)
}
