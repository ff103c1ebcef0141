//! Writes the changes of one batch: sends one statement, which other batches may share, commits,
//! and notifies order expiry of new orders.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::LockKey;
use tokio::time::{Instant, timeout_at};

use super::batch::{
    AttemptError, BatchDecision, BatchEntry, EntryResult, PendingWrite, ReadyWrite,
    collect_results, end_failed_session,
};
use super::group_commit;
use super::locks::AcquiredLocks;
use super::session::DatabaseSession;
use crate::probe::{Point, Probe, ProbedValue};
use crate::shop::command::changes::NewOrder;
use crate::shop::command::state::ShopState;
use crate::shop::failure::{Error, Execution, Failure};
use crate::shop::store::{WriteResult, read};
use crate::shop::strategy::{ReleaseTime, Strategy};
use crate::shop::{OrderId, Shop, Sku, UserId};

/// Sends the write and commits it.
pub(super) async fn write(
    mut session: DatabaseSession,
    strategy: &'static Strategy,
    locks: &mut AcquiredLocks,
    entries: &[BatchEntry<'_>],
    (decided, mut results): (BatchDecision, Vec<Option<EntryResult>>),
    deadline: Instant,
    shop: &Shop,
) -> Result<Vec<EntryResult>, AttemptError> {
    let autocommit = matches!(session, DatabaseSession::Autocommit(_));
    if autocommit {
        let passed =
            pass_point(entries_with_changes(entries, &decided), Point::Commit, locks, |_, _| None);
        timeout_at(deadline, passed).await.map_err(|_| Error::deadline_passed())?;
    }
    let write = Arc::new(ReadyWrite::new(strategy, &locks.guards, entries, decided)?);
    let decided = &write.decision;
    for (at, (_, response)) in &decided.changes {
        results[*at] = Some(Ok(Execution::now(response.clone())));
    }
    let results = collect_results(results)?;
    let pending = |results: Vec<EntryResult>| {
        Box::new(PendingWrite {
            row: write.rows.first(),
            results,
            written: decided.written_positions(),
        })
    };
    let sent = send(&mut session, entries, &write, shop);
    let sent = match autocommit {
        true => sent.await,
        false => timeout_at(deadline, sent).await.map_err(|_| Error::deadline_passed())?,
    };
    match sent {
        Ok(WriteResult::Done) => {}
        Ok(WriteResult::RowChanged) => {
            session.abandon().await;
            return Err(Error::Conflict("a row moved between read and write".to_owned()).into());
        }
        Err(Failure::Rejected(rejection)) => {
            session.abandon().await;
            return Ok(results.into_iter().map(|_| Err(rejection.clone().into())).collect());
        }
        Err(Failure::Error(error @ Error::Unavailable { .. })) if autocommit => {
            return Err(AttemptError::UnknownOutcome(error, pending(results)));
        }
        Err(Failure::Error(error)) => {
            end_failed_session(session, &error).await;
            return Err(error.into());
        }
    }
    match session {
        DatabaseSession::Autocommit(_) => {
            session.abandon().await;
            let after = |at, key: &LockKey| decided.value_after(at, key);
            pass_point(entries_with_changes(entries, decided), Point::Write, locks, after).await;
        }
        DatabaseSession::Explicit(_) => {
            match commit((session, strategy, deadline), locks, entries, decided).await? {
                CommitResult::Committed => {}
                CommitResult::Rejected(rejected) => return Ok(vec![Err(rejected)]),
                CommitResult::Unknown(error) => {
                    return Err(AttemptError::UnknownOutcome(error, pending(results)));
                }
            }
        }
    }
    notify_expiry(shop, decided);
    pass_point(entries_with_changes(entries, decided), Point::Committed, locks, |_, _| None).await;
    Ok(results)
}

/// Returns the entries with changes, each with its position.
fn entries_with_changes<'a, 'e>(
    entries: &'a [BatchEntry<'e>],
    decided: &'a BatchDecision,
) -> impl Iterator<Item = (usize, BatchEntry<'e>)> {
    entries.iter().copied().enumerate().filter(|(at, _)| decided.changes.contains_key(at))
}

/// Sends the write, through group commit if it may share a statement.
async fn send(
    session: &mut DatabaseSession,
    entries: &[BatchEntry<'_>],
    write: &Arc<ReadyWrite>,
    shop: &Shop,
) -> Result<WriteResult, Failure> {
    // Only batches of a leader may: theirs is the only write of its key in this process.
    let batched = |entry: &BatchEntry<'_>| entry.options.batch_key(entry.command).is_some();
    let shared = entries.first().is_some_and(batched);
    match session {
        DatabaseSession::Autocommit(_) if shared => {
            shop.engine.group_commit.write(shop, session, write).await
        }
        DatabaseSession::Autocommit(_) => group_commit::send(session, &[write.batch_write()]).await,
        DatabaseSession::Explicit(tx) => {
            group_commit::write_batches(tx, &[write.batch_write()]).await
        }
    }
}

/// The result of a commit.
enum CommitResult {
    Committed,
    /// A limit is exceeded; the transaction is rolled back.
    Rejected(Failure),
    /// The outcome is unknown.
    Unknown(Error),
}

/// Checks the limits that the decision could not check, and commits.
async fn commit(
    (mut session, strategy, deadline): (DatabaseSession, &'static Strategy, Instant),
    locks: &mut AcquiredLocks,
    entries: &[BatchEntry<'_>],
    decided: &BatchDecision,
) -> Result<CommitResult, AttemptError> {
    let before_commit = async {
        if !strategy.read_counts_purchases()
            && !strategy.locks_row_at_read()
            && let Some(rejected) = exceeded_limit(&mut session, entries, decided).await?
        {
            return Ok::<_, Error>(Some(rejected));
        }
        let after = |at, key: &LockKey| decided.value_after(at, key);
        pass_point(entries_with_changes(entries, decided), Point::Write, locks, after).await;
        if strategy.release == ReleaseTime::BeforeCommit
            && let Some(entry) = entries.first()
        {
            locks.release_early(entry.options).await;
        }
        pass_point(entries_with_changes(entries, decided), Point::Commit, locks, |_, _| None).await;
        Ok(None)
    };
    match timeout_at(deadline, before_commit).await {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(rejected))) => {
            session.abandon().await;
            return Ok(CommitResult::Rejected(rejected));
        }
        Ok(Err(error)) => {
            end_failed_session(session, &error).await;
            return Err(error.into());
        }
        Err(_) => return Err(Error::deadline_passed().into()),
    }
    match session.commit().await {
        Ok(()) => Ok(CommitResult::Committed),
        Err(error @ Error::Conflict(_)) => Err(error.into()),
        Err(error) => Ok(CommitResult::Unknown(error)),
    }
}

/// Notifies order expiry of the placed orders.
fn notify_expiry(shop: &Shop, decided: &BatchDecision) {
    let orders = decided.changes.values().filter_map(|(changes, _)| changes.order.as_ref());
    let due_in = |order: &NewOrder| (order.expires_at - order.created_at).try_into();
    let placed: Vec<(OrderId, Duration)> =
        orders.map(|order| (order.id, due_in(order).unwrap_or_default())).collect();
    if !placed.is_empty() {
        shop.expiry.notify(&placed);
    }
}

/// Passes a probe point for all commands that the lab watches, concurrently.
pub(super) async fn pass_point<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    point: Point,
    locks: &AcquiredLocks,
    value: impl Fn(usize, &LockKey) -> Option<i64>,
) {
    let watched = entries.filter(|(_, entry)| matches!(entry.options.probe, Probe::Lab(_)));
    let passes = watched.map(|(at, entry)| {
        let keys = entry.command.reads().lock_keys().into_iter();
        let seen: Vec<ProbedValue> = keys
            .map(|key| ProbedValue {
                key: key.as_str().to_owned(),
                value: value(at, &key),
                fence: locks.guards.fence(&key),
            })
            .collect();
        async move { entry.options.probe.at(point, seen).await }
    });
    join_all(passes).await;
}

/// Counts each buyer's units of the limited items.
pub(super) async fn count_purchases(
    session: &mut DatabaseSession,
    entries: &[BatchEntry<'_>],
    state: &ShopState,
) -> Result<HashMap<(Sku, UserId), i64>, Error> {
    let limited = state.items.iter().filter(|(_, item)| item.limit_per_user.is_some());
    let skus: Vec<&Sku> = limited.map(|(sku, _)| sku).collect();
    let buyers = entries.iter().filter_map(|entry| entry.command.reads().buyer);
    let pairs: Vec<(Sku, UserId)> =
        buyers.flat_map(|user| skus.iter().map(move |sku| ((*sku).clone(), user))).collect();
    if pairs.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(read::count_purchases(session.connection(), &pairs).await?)
}

/// Decides again with the customers' purchases, which are exact because the write has locked the
/// rows. Subtracts the units of this write, which the count includes. Returns the first rejection.
async fn exceeded_limit(
    session: &mut DatabaseSession,
    entries: &[BatchEntry<'_>],
    decided: &BatchDecision,
) -> Result<Option<Failure>, Error> {
    let mut purchased = count_purchases(session, entries, &decided.before).await?;
    if purchased.is_empty() {
        return Ok(None);
    }
    for (changes, _) in decided.changes.values() {
        let Some(order) = &changes.order else { continue };
        for line in &order.lines {
            if let Some(count) = purchased.get_mut(&(line.sku.clone(), order.user)) {
                *count -= line.quantity;
            }
        }
    }
    let mut state = ShopState { purchased, ..decided.before.clone() };
    let mut again = entries.iter().map(|entry| entry.command.decide(&mut state));
    Ok(again.find_map(Result::err).map(Failure::from))
}
