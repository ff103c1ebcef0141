//! Executes one command or one batch under its locks: read, decide, write; again where that helps.

use std::time::Duration;

use futures_util::FutureExt as _;
use rand::RngExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::batch::{Entry, EntryResult, LockState, Pending, Stop, collect, end_failed};
use super::decision::decide;
use super::locks::AcquiredLocks;
use super::resolve::resolve;
use super::session::{Connection, Session};
use super::write::{pass, write};
use crate::probe::Point;
use crate::shop::command::Reads;
use crate::shop::failure::{Error, Executed, Failure};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::key_records;
use crate::shop::store::read::{self, ReadRequest, Snapshot};
use crate::shop::store::reserve::reserve;
use crate::shop::strategy::{Isolation, Read, Strategy, advisory};
use crate::shop::{Shop, UserId};

/// Executes the commands, which share `locks`; each gets its own result.
pub(super) async fn execute_entries(
    shop: &Shop,
    strategy: &'static Strategy,
    locks: &mut AcquiredLocks,
    entries: &[Entry<'_>],
) -> (Vec<EntryResult>, LockState) {
    let mut attempts = 1;
    loop {
        match attempt(shop, strategy, locks, entries).await {
            Ok(results) => return (results, LockState::Held),
            Err(Stop::StaleFences(stale)) => {
                metrics::counter!("holdfast_stale_writes_total").increment(1);
                match locks.raise_fences(stale).await {
                    Ok(()) => {}
                    Err(error @ Error::LockLost(_)) => {
                        return (all(entries, &error), LockState::Lost);
                    }
                    Err(error) => return (all(entries, &error), LockState::Held),
                }
            }
            Err(Stop::Unknown(error, pending)) => {
                return resolve_outcome(shop, entries, error, *pending).await;
            }
            Err(Stop::Failed(Error::Conflict(_))) if attempts < strategy.attempts => {
                let pause = rand::rng().random_range(2..=20 * attempts);
                sleep(Duration::from_millis(pause.into())).await;
                attempts += 1;
            }
            Err(Stop::Failed(Error::Conflict(cause))) => {
                let cause = format!("given up after {attempts} attempts: {cause}");
                return (all(entries, &Error::Overloaded(cause)), LockState::Held);
            }
            // A mistake of ours in one command must not fail the others.
            Err(Stop::Failed(error @ Error::Bug(_))) if entries.len() > 1 => {
                tracing::warn!(%error, commands = entries.len(), "a batch failed; trying halves");
                let (front, back) = entries.split_at(entries.len() / 2);
                let front = execute_entries(shop, strategy, locks, front);
                let (mut results, state) = Box::pin(front).await;
                if !matches!(state, LockState::Held) {
                    let error = Error::Overloaded("the batch before it failed".to_owned());
                    results.extend(all(back, &error));
                    return (results, state);
                }
                let (more, state) = Box::pin(execute_entries(shop, strategy, locks, back)).await;
                results.extend(more);
                return (results, state);
            }
            Err(Stop::Failed(error)) => {
                let state = match &error {
                    Error::Unavailable { .. } => LockState::Unavailable(error.clone()),
                    _ => LockState::Held,
                };
                return (all(entries, &error), state);
            }
        }
    }
}

fn all(entries: &[Entry<'_>], error: &Error) -> Vec<EntryResult> {
    entries.iter().map(|_| Err(error.clone().into())).collect()
}

/// Finds out what became of a write. Who was rejected for want of what the others took was rejected
/// rightly if they have it, and otherwise gets the error.
async fn resolve_outcome(
    shop: &Shop,
    entries: &[Entry<'_>],
    error: Error,
    mut pending: Pending,
) -> (Vec<EntryResult>, LockState) {
    tracing::warn!(%error, commands = pending.written.len(), "the outcome of a write is unknown");
    let keys: Vec<&IdempotencyRequest> =
        pending.written.iter().map(|at| entries[*at].command.idempotency()).collect();
    let resolved = match &pending.row {
        Some(row) => resolve(shop, row, &keys).await,
        None => Err(Error::Bug("a write changed no row".to_owned())),
    };
    let Ok(replays) = resolved else {
        let cause = error.to_string();
        let unknown = Error::Unavailable { what: "Postgres", cause, outcome_unknown: true };
        for result in &mut pending.results {
            if !matches!(result, Ok(Executed { replayed: true, .. })) {
                *result = Err(unknown.clone().into());
            }
        }
        return (pending.results, LockState::MayStillWrite);
    };
    let written = replays.iter().all(Option::is_some);
    for (at, replay) in pending.written.iter().zip(replays) {
        pending.results[*at] = match replay {
            Some(Ok(response)) => Ok(Executed::now(response)),
            Some(Err(rejection)) => Err(rejection.into()),
            None => Err(error.clone().into()),
        };
    }
    for result in &mut pending.results {
        if !written && matches!(result, Err(Failure::Rejected(_))) {
            *result = Err(error.clone().into());
        }
    }
    (pending.results, LockState::Held)
}

async fn attempt(
    shop: &Shop,
    strategy: &'static Strategy,
    locks: &mut AcquiredLocks,
    entries: &[Entry<'_>],
) -> Result<Vec<EntryResult>, Stop> {
    let deadline = entries.iter().map(|entry| entry.options.deadline).max();
    let deadline = deadline.unwrap_or_else(Instant::now);
    let before_write = async {
        let (mut session, snapshot) = open_and_read(shop, strategy, entries).await?;
        let mut results = replay_known(&mut session, entries, &snapshot).await?;
        let decided = decide(&mut session, strategy, locks, entries, snapshot.state, &mut results);
        let decided = decided.await?;
        let all = entries.iter().copied().enumerate();
        pass(all, Point::Read, locks, |at, key| decided.value_before(at, key)).await;
        Ok::<_, Stop>((session, decided, results))
    };
    let late = || Stop::Failed(Error::deadline_passed());
    let (session, decided, results) =
        timeout_at(deadline, before_write).await.unwrap_or_else(|_| Err(late()))?;
    if decided.changes.is_empty() {
        session.abandon().await;
        return collect(results);
    }
    write(session, strategy, locks, entries, (decided, results), deadline, shop).await
}

/// Opens the session and reads, on the first connection that works.
async fn open_and_read(
    shop: &Shop,
    strategy: &'static Strategy,
    entries: &[Entry<'_>],
) -> Result<(Session, Snapshot), Stop> {
    let mut request = read_request(strategy, entries);
    if strategy.transaction == Isolation::Autocommit {
        let (snapshot, connection) = shop
            .pool
            .ask(move |db| {
                let request = request.clone();
                async move { read::read(db, &request).await }.boxed()
            })
            .await?;
        return Ok((Session::Autocommit(Connection::new(connection)), snapshot));
    }
    let mut known_keys = Vec::new();
    if strategy.transaction == Isolation::Serializable {
        let keys = std::mem::take(&mut request.keys);
        let mut connection = shop.connection().await?;
        let asked: Vec<&IdempotencyRequest> = keys.iter().collect();
        let found = key_records::look_up(&mut connection, &asked).await?;
        let found = found.iter().enumerate().filter(|(_, found)| found.is_some());
        known_keys.extend(found.map(|(at, _)| at));
    }
    let mut session = Session::Explicit(shop.begin().await?);
    match read_in_transaction(&mut session, strategy, entries, &request).await {
        Ok(mut snapshot) => {
            snapshot.known_keys.append(&mut known_keys);
            Ok((session, snapshot))
        }
        Err(error) => {
            end_failed(session, &error).await;
            Err(error.into())
        }
    }
}

async fn read_in_transaction(
    session: &mut Session,
    strategy: &'static Strategy,
    entries: &[Entry<'_>],
    request: &ReadRequest,
) -> Result<Snapshot, Error> {
    if strategy.transaction == Isolation::Serializable {
        sqlx::query!("set transaction isolation level serializable")
            .execute(&mut **session)
            .await?;
    }
    if strategy.read == Read::Advisory {
        advisory::lock(session, &request.reads.lock_keys()).await?;
    }
    // One command: only `batched` executes several.
    let reservation = entries.first().and_then(|entry| entry.command.reservation());
    match reservation.filter(|_| strategy.read == Read::Reserve) {
        Some(reservation) => {
            let reserved = reserve(session, &reservation).await?;
            let mut snapshot = read::read(session, request).await?;
            reserved.put_into(&mut snapshot.state);
            Ok(snapshot)
        }
        None => Ok(read::read(session, request).await?),
    }
}

/// What all commands together read.
fn read_request(strategy: &'static Strategy, entries: &[Entry<'_>]) -> ReadRequest {
    let mut reads = Reads::default();
    let mut buyers: Vec<UserId> = Vec::new();
    for entry in entries {
        let Reads { items, account, orders, skip_locked_orders, buyer, entry_in } =
            entry.command.reads();
        reads.items.extend(items);
        reads.account = reads.account.or(account);
        reads.orders.extend(orders);
        reads.skip_locked_orders |= skip_locked_orders;
        reads.entry_in = reads.entry_in.or(entry_in);
        buyers.extend(buyer.filter(|_| strategy.counts_with_read()));
    }
    reads.items.sort();
    reads.items.dedup();
    reads.orders.sort();
    reads.orders.dedup();
    buyers.sort();
    buyers.dedup();
    let lock_values = match strategy.read {
        Read::RowLock => true,
        Read::Reserve => entries.iter().any(|entry| entry.command.reservation().is_none()),
        Read::Plain | Read::Advisory => false,
    };
    ReadRequest {
        reads,
        buyers,
        keys: entries.iter().map(|entry| entry.command.idempotency().clone()).collect(),
        lock_orders: strategy.transaction != Isolation::Autocommit,
        lock_values,
    }
}

/// The results of commands whose key has a record.
async fn replay_known(
    session: &mut Session,
    entries: &[Entry<'_>],
    snapshot: &Snapshot,
) -> Result<Vec<Option<EntryResult>>, Stop> {
    let mut results: Vec<Option<EntryResult>> = entries.iter().map(|_| None).collect();
    let asked: Vec<&IdempotencyRequest> =
        snapshot.known_keys.iter().map(|at| entries[*at].command.idempotency()).collect();
    let replays = key_records::look_up(session, &asked).await?;
    for (at, replay) in snapshot.known_keys.iter().zip(replays) {
        let purged = || Error::Conflict("a key record was purged since the read".to_owned());
        results[*at] = Some(key_records::replayed(replay.ok_or_else(purged)?));
    }
    Ok(results)
}
