//! The way of a batch under its locks, in order: read, decide, write. A single command is a batch
//! of one.
//!
//! Each attempt takes the whole way, and another follows only if nothing was written. Locks are
//! acquired before and released after it, by the [`leader`](crate::engine::leader) of a queue or,
//! for a single command, by [`direct`](crate::engine::direct).

pub mod begin;
pub mod decide;
pub mod entries;
pub mod entry;
pub mod kept_row;
pub mod points;
pub mod session;

use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::FencedGuard;
use rand::RngExt as _;
use tokio::time::{Instant, sleep};
use tracing::debug_span;

use crate::command::state::ShopState;
use crate::db::ErrorClass;
use crate::engine::commit;
use crate::engine::commit::resolve::resolve_outcome;
use crate::engine::lease::locks::{AcquiredLocks, LockState};
use crate::failure::{Error, Failure};
use crate::probe::Point;
use crate::store::read::{self, ReadSnapshot};
use crate::store::{BatchWrite, WriteResult};
use crate::strategy::ReadMethod;
use crate::{Sku, UserId};
use begin::{BegunAttempt, ReadResult, begin_unread, read};
use decide::{Decision, decide};
use entries::{Batch, begin_step};
use entry::{AttemptError, EntryResult};
use holdfast_base::metrics::define_metrics;
use kept_row::count_unread_batch;
use points::{note_refused, pass_committed, pass_point, pass_written};
use session::DatabaseSession;

define_metrics! {
    STALE_FENCES: "holdfast_stale_fences_total", Counter [] &[],
        "Reads of a row with a higher fence than the lock: it was lost, or Redis lost its counter";
}

/// Executes the batch of a leader without a read, on what it knows of its own last write. Returns
/// `None` if it wrote nothing and is to be executed with a read, as if it had not begun.
pub async fn run_unread(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
    known: ReadSnapshot,
) -> Option<(Vec<EntryResult>, LockState)> {
    let begun = begin_unread(batch, known).await;
    match attempt(batch, locks, begun).await {
        Ok(results) => {
            count_unread_batch("written");
            Some((results, LockState::Held))
        }
        Err(AttemptError::UnknownOutcome(error, write, results)) => {
            Some(resolve_outcome(batch, error, &write, results).await)
        }
        Err(AttemptError::Failed(failure)) if !may_help_to_read(&failure) => {
            Some(fail(batch, failure))
        }
        Err(AttemptError::Failed(_) | AttemptError::StaleFences(_)) => {
            count_unread_batch("refused");
            None
        }
    }
}

/// Returns whether an unread batch may succeed with a read: a row or a key record is not as its
/// leader assumed, or one of its commands fails the others.
fn may_help_to_read(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Error(
            Error::Conflict(_) | Error::Postgres(ErrorClass::LockTimeout, _) | Error::Bug(_)
        )
    )
}

/// Completes a batch that has begun; some of its commands may have been taken out since.
pub async fn complete(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
    begun: ReadResult,
) -> (Vec<EntryResult>, LockState) {
    let executed = make_attempts(batch, locks, Some(begun)).await;
    pass_point(batch.positions(), Point::Release, locks, |_, _| None).await;
    executed
}

/// Executes the commands under their `locks`, and returns one result per command.
pub async fn run(batch: Batch<'_>, locks: &mut AcquiredLocks) -> (Vec<EntryResult>, LockState) {
    make_attempts(batch, locks, None).await
}

/// Makes attempts until there are results. The first continues with `begun`, if given.
async fn make_attempts(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
    mut begun: Option<ReadResult>,
) -> (Vec<EntryResult>, LockState) {
    let mut attempts = 1;
    loop {
        let begun = match begun.take() {
            Some(begun) => begun,
            None => read(batch).await,
        };

        let failure = match attempt(batch, locks, begun).await {
            Ok(results) => return (results, LockState::Held),
            Err(AttemptError::StaleFences(stale)) => {
                points::note_stale(batch.positions(), locks, &stale);
                metrics::counter!(STALE_FENCES).increment(1);
                // Not an attempt of the strategy: the locks bound how often it is tried.
                match locks.raise_fences(stale).await {
                    Ok(()) => continue,
                    Err(error @ Error::LockLost(_)) => {
                        return (batch.fail_all(error), LockState::Lost);
                    }
                    Err(error) => return (batch.fail_all(error), LockState::Held),
                }
            }
            Err(AttemptError::UnknownOutcome(error, write, results)) => {
                // Never another attempt: the write may be done.
                return resolve_outcome(batch, error, &write, results).await;
            }
            Err(AttemptError::Failed(failure)) => failure,
        };

        match failure {
            Failure::Error(Error::Conflict(_)) if attempts < batch.strategy.attempts => {
                // Random and growing, so that those who met once do not meet again.
                let pause_ms: u32 = rand::rng().random_range(2..=20 * attempts);
                sleep(Duration::from_millis(pause_ms.into())).await;
                attempts += 1;
            }
            Failure::Error(Error::Conflict(cause)) => {
                let conflicts = Error::Conflicts { attempts, cause };
                return (batch.fail_all(conflicts), LockState::Held);
            }
            // A bug in one command must not fail the others.
            Failure::Error(error @ Error::Bug(_)) if batch.entries.len() > 1 => {
                let commands = batch.entries.len();
                tracing::warn!(%error, commands, "a batch failed; trying halves");
                return run_halves(batch, locks).await;
            }
            failure => return fail(batch, failure),
        }
    }
}

fn fail(batch: Batch<'_>, failure: Failure) -> (Vec<EntryResult>, LockState) {
    let state = match &failure {
        Failure::Error(error) if error.is_outage() => LockState::HeldInOutage(error.clone()),
        _ => LockState::Held,
    };
    (batch.fail_all(failure), state)
}

async fn run_halves(batch: Batch<'_>, locks: &mut AcquiredLocks) -> (Vec<EntryResult>, LockState) {
    let (front, back) = batch.entries.split_at(batch.entries.len() / 2);
    let front = Batch { entries: front, ..batch };
    let back = Batch { entries: back, ..batch };

    let (mut results, state) = Box::pin(make_attempts(front, locks, None)).await;
    let unexecuted = match &state {
        LockState::Held => None,
        LockState::HeldInOutage(outage) | LockState::LeaveToExpire(outage) => Some(outage.clone()),
        LockState::Lost => Some(Error::GivenUp("the first half of its batch lost the lock")),
    };
    if let Some(error) = unexecuted {
        results.extend(back.fail_all(error));
        return (results, state);
    }

    let (more, state) = Box::pin(make_attempts(back, locks, None)).await;
    results.extend(more);
    (results, state)
}

/// One attempt, from the end of its read: decides, and writes what was decided.
async fn attempt(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
    begun: ReadResult,
) -> Result<Vec<EntryResult>, AttemptError> {
    let BegunAttempt { mut session, snapshot, clock, is_unread, _lab_permit } = begun?;
    if Instant::now() >= batch.deadline() {
        // The deadline passed since the read, e.g. while the idempotency locks were acquired.
        session.end().await;
        return Err(Error::deadline_passed().into());
    }

    let step = begin_step(batch, |held| debug_span!(parent: held, "decide"));
    let decided = batch.in_time(decide_in(&mut session, batch, locks, snapshot)).await?;
    drop(step);
    let Decision { before, after, write, results } = match decided {
        Ok(decided) => decided,
        Err(AttemptError::Failed(failure)) => return Err(ended(session, failure).await),
        Err(stop) => {
            session.end().await;
            return Err(stop);
        }
    };
    if is_unread && (write.is_none() || results.iter().any(Result::is_err)) {
        // Its key may have a record, and no insert of one would find it: the order that it placed
        // is what the stock lacks now. And without a write, no guard compares the row.
        session.end().await;
        return Err(Error::Conflict("a rejection needs a read".to_owned()).into());
    }
    let Some(mut write) = write else {
        session.end().await;
        return Ok(results);
    };

    let _step = begin_step(batch, |held| debug_span!(parent: held, "write"));
    write.is_unread = is_unread;
    let write = Arc::new(write);
    match session {
        DatabaseSession::Autocommit(_) => {
            let results = write_autocommitted(batch, session, locks, write, results).await?;
            if batch.has_leader {
                let fence = locks.lease().map(FencedGuard::fence);
                locks.kept_row.keep(after, fence, clock);
            }
            Ok(results)
        }
        DatabaseSession::Explicit(_) => {
            write_and_commit(batch, session, locks, before, write, results).await
        }
    }
}

async fn decide_in(
    session: &mut DatabaseSession,
    batch: Batch<'_>,
    locks: &AcquiredLocks,
    snapshot: ReadSnapshot,
) -> Result<Decision, AttemptError> {
    let mut replayed = vec![None; batch.entries.len()];
    if !snapshot.known_keys.is_empty() {
        session.replay(batch.entries, &snapshot.known_keys, &mut replayed).await?;
    }

    let Batch { strategy, entries, .. } = batch;
    let mut state = snapshot.state;
    if let Some(taken) = &locks.taken {
        taken.adjust(&mut state);
    }
    let decided = decide(entries, strategy, &locks.guards, state, replayed)?;

    if batch.yields_connection() {
        // A paused request must not keep a connection from the shop where no transaction is open.
        session.return_to_pool();
    }
    pass_point(batch.positions(), Point::Read, locks, |at, key| decided.value_before(at, key))
        .await;
    if strategy.read == ReadMethod::CheckThenUpdate {
        // Boxed, as it would make the future of every other strategy larger.
        return Box::pin(update_unchecked(session, batch, locks, decided)).await;
    }
    Ok(decided)
}

/// Sends what was decided as an update without a condition, and decides again on the row that it
/// returns, so that response and ledger are of that row: the mistake of `check-then-decrement`.
async fn update_unchecked(
    session: &mut DatabaseSession,
    batch: Batch<'_>,
    locks: &AcquiredLocks,
    checked: Decision,
) -> Result<Decision, AttemptError> {
    if checked.write.is_none() {
        return Ok(checked);
    }

    match session.update_unchecked(batch).await {
        Ok(Some(updated)) => {
            let Batch { strategy, entries, .. } = batch;
            let replayed = vec![None; entries.len()];
            decide(entries, strategy, &locks.guards, updated.state, replayed)
        }
        Ok(None) => Ok(checked),
        Err(error) => {
            // By a constraint of the column, if it has one.
            if let Some(write) = &checked.write {
                note_refused(batch.written(write), locks, write);
            }
            Err(error.into())
        }
    }
}

/// Writes in one statement that commits itself: no row is locked while this process computes.
async fn write_autocommitted(
    batch: Batch<'_>,
    mut session: DatabaseSession,
    locks: &AcquiredLocks,
    write: Arc<BatchWrite>,
    results: Vec<EntryResult>,
) -> Result<Vec<EntryResult>, AttemptError> {
    let shop = batch.shop;
    // Sending the statement is the commit.
    let passed = pass_point(batch.written(&write), Point::Commit, locks, |_, _| None);
    batch.in_time(passed).await?;
    // Of a request that the lab has paused, or of a batch without a read.
    session.reopen(&shop.pool).await?;

    // Not within the deadline: once it is sent, it may be done. It has a timeout of its own.
    let sent = if batch.has_leader {
        let engine = &shop.engine;
        let groups =
            if batch.is_in_lab() { &engine.lab_group_commit } else { &engine.group_commit };
        groups.write(&mut session, &write).await
    } else {
        commit::send(&shop.pool, &mut session, batch.data_path(), &[&write]).await
    };
    match sent {
        // Before the points: a request that the lab pauses there keeps no connection.
        Ok(WriteResult::Done) => session.end().await,
        Ok(WriteResult::RowChanged) => {
            note_refused(batch.written(&write), locks, &write);
            return Err(row_changed(session).await);
        }
        Err(Failure::Error(error @ Error::Unavailable { .. })) => {
            return Err(AttemptError::UnknownOutcome(error, write, results));
        }
        Err(failure) => return Err(ended(session, failure).await),
    }

    pass_written(batch.written(&write), locks, &write).await;
    pass_committed(batch.written(&write), locks, &write).await;
    Ok(results)
}

/// Writes in the transaction of the read, and commits it.
async fn write_and_commit(
    batch: Batch<'_>,
    mut session: DatabaseSession,
    locks: &mut AcquiredLocks,
    before: ShopState,
    write: Arc<BatchWrite>,
    results: Vec<EntryResult>,
) -> Result<Vec<EntryResult>, AttemptError> {
    let batches = [&*write];
    let writing = commit::write_batches(session.connection(), batch.data_path(), &batches);
    match batch.in_time(writing).await? {
        Ok(WriteResult::Done) => {}
        Ok(WriteResult::RowChanged) => {
            note_refused(batch.written(&write), locks, &write);
            return Err(row_changed(session).await);
        }
        Err(failure) => {
            if matches!(failure, Failure::Error(Error::Conflict(_))) {
                note_refused(batch.written(&write), locks, &write);
            }
            return Err(ended(session, failure).await);
        }
    }

    let committing = before_commit(batch, &mut session, locks, before, &write);
    if let Err(failure) = batch.in_time(committing).await? {
        return Err(ended(session, failure).await);
    }
    match session.commit(&batch.shop.pool).await {
        Ok(()) => {}
        // Postgres answered: the transaction is rolled back.
        Err(error @ (Error::Conflict(_) | Error::Postgres(..))) => {
            if matches!(error, Error::Conflict(_)) {
                note_refused(batch.written(&write), locks, &write);
            }
            return Err(error.into());
        }
        Err(error) => return Err(AttemptError::UnknownOutcome(error, write, results)),
    }

    pass_committed(batch.written(&write), locks, &write).await;
    Ok(results)
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
    if !batch.strategy.counts_with_read() {
        check_limits(batch, session, before, write).await?;
    }

    pass_written(batch.written(write), locks, write).await;
    // The mistake that this strategy is there to show.
    if batch.strategy.releases_before_commit()
        && let Some(entry) = batch.entries.first()
    {
        locks.end(entry.context, false).await;
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

/// Ends the session of a statement that failed before it changed anything.
async fn ended(session: DatabaseSession, failure: Failure) -> AttemptError {
    match &failure {
        Failure::Rejected(_) => session.end().await,
        Failure::Error(error) => session.end_failed(error).await,
    }
    AttemptError::Failed(failure)
}

async fn row_changed(session: DatabaseSession) -> AttemptError {
    session.end().await;
    Error::Conflict("a row changed between read and write".to_owned()).into()
}
