//! Executes one command or one batch under its locks: reads, decides and writes, with retries.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_lock::LockKey;
use rand::RngExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::batch::{
    AttemptError, BatchDecision, BatchEntry, EntryResult, LockState, collect_results,
    end_failed_session,
};
use super::locks::AcquiredLocks;
use super::replay;
use super::resolve::resolve_outcome;
use super::session::DatabaseSession;
use super::write::{count_purchases, pass_point, write};
use crate::metrics::STALE_WRITES;
use crate::probe::Point;
use crate::shop::command::ReadSet;
use crate::shop::command::state::{BalanceSnapshot, ShopState};
use crate::shop::failure::{Error, Execution};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::key_records;
use crate::shop::store::read::{self, ReadRequest, ReadSnapshot};
use crate::shop::store::reserve::reserve;
use crate::shop::strategy::{Isolation, ReadMethod, Strategy, advisory};
use crate::shop::{Shop, UserId};

/// An open session with the snapshot that was read on it.
pub(super) type BeginResult = Result<(DatabaseSession, ReadSnapshot), AttemptError>;

/// Executes the commands under their shared `locks`, and returns one result per command. The first
/// attempt continues with `begun`, if given.
pub(super) async fn execute_entries(
    shop: &Shop,
    strategy: &'static Strategy,
    locks: &mut AcquiredLocks,
    entries: &[BatchEntry<'_>],
    mut begun: Option<BeginResult>,
) -> (Vec<EntryResult>, LockState) {
    let mut attempts = 1;
    loop {
        let begun = match begun.take() {
            Some(begun) => begun,
            None => begin(shop, strategy, entries).await,
        };
        match attempt(shop, strategy, locks, entries, begun).await {
            Ok(results) => return (results, LockState::Held),
            Err(AttemptError::StaleFences(stale)) => {
                metrics::counter!(STALE_WRITES).increment(1);
                match locks.raise_fences(stale).await {
                    Ok(()) => {}
                    Err(error @ Error::LockLost(_)) => {
                        return (fail_all(entries, &error), LockState::Lost);
                    }
                    Err(error) => return (fail_all(entries, &error), LockState::Held),
                }
            }
            Err(AttemptError::UnknownOutcome(error, pending)) => {
                return resolve_outcome(shop, entries, error, *pending).await;
            }
            Err(AttemptError::Failed(Error::Conflict(_))) if attempts < strategy.attempts => {
                let pause = rand::rng().random_range(2..=20 * attempts);
                sleep(Duration::from_millis(pause.into())).await;
                attempts += 1;
            }
            Err(AttemptError::Failed(Error::Conflict(cause))) => {
                let cause = format!("given up after {attempts} attempts: {cause}");
                return (fail_all(entries, &Error::Overloaded(cause)), LockState::Held);
            }
            // A bug in one command must not fail the others.
            Err(AttemptError::Failed(error @ Error::Bug(_))) if entries.len() > 1 => {
                tracing::warn!(%error, commands = entries.len(), "a batch failed; trying halves");
                let (front, back) = entries.split_at(entries.len() / 2);
                let front = execute_entries(shop, strategy, locks, front, None);
                let (mut results, state) = Box::pin(front).await;
                if !matches!(state, LockState::Held) {
                    let error = Error::Overloaded("the batch before it failed".to_owned());
                    results.extend(fail_all(back, &error));
                    return (results, state);
                }
                let back = execute_entries(shop, strategy, locks, back, None);
                let (more, state) = Box::pin(back).await;
                results.extend(more);
                return (results, state);
            }
            Err(AttemptError::Failed(error)) => {
                let state = match &error {
                    Error::Unavailable { .. } => LockState::Unavailable(error.clone()),
                    _ => LockState::Held,
                };
                return (fail_all(entries, &error), state);
            }
        }
    }
}

fn fail_all(entries: &[BatchEntry<'_>], error: &Error) -> Vec<EntryResult> {
    entries.iter().map(|_| Err(error.clone().into())).collect()
}

async fn attempt(
    shop: &Shop,
    strategy: &'static Strategy,
    locks: &mut AcquiredLocks,
    entries: &[BatchEntry<'_>],
    begun: BeginResult,
) -> Result<Vec<EntryResult>, AttemptError> {
    let deadline = deadline(entries);
    let (mut session, snapshot) = begun?;
    if Instant::now() >= deadline {
        // The deadline passed since the read, e.g. while the key locks were acquired.
        session.abandon().await;
        return Err(Error::deadline_passed().into());
    }
    let deciding = async {
        let mut results = replay_known_keys(&mut session, entries, &snapshot).await?;
        let decided = decide(&mut session, strategy, locks, entries, snapshot.state, &mut results);
        let decided = decided.await?;
        let all = entries.iter().copied().enumerate();
        pass_point(all, Point::Read, locks, |at, key| decided.value_before(at, key)).await;
        Ok::<_, AttemptError>((decided, results))
    };
    let (decided, results) = match timeout_at(deadline, deciding).await {
        Ok(Ok(decided)) => decided,
        Ok(Err(AttemptError::Failed(error))) => {
            end_failed_session(session, &error).await;
            return Err(error.into());
        }
        Ok(Err(stop)) => {
            session.abandon().await;
            return Err(stop);
        }
        Err(_) => return Err(Error::deadline_passed().into()),
    };
    if decided.changes.is_empty() {
        session.abandon().await;
        return collect_results(results);
    }
    write(session, strategy, locks, entries, (decided, results), deadline, shop).await
}

fn deadline(entries: &[BatchEntry<'_>]) -> Instant {
    entries.iter().map(|entry| entry.options.deadline).max().unwrap_or_else(Instant::now)
}

/// Begins an attempt within the deadline: opens the session and reads the snapshot.
pub(super) async fn begin(
    shop: &Shop,
    strategy: &'static Strategy,
    entries: &[BatchEntry<'_>],
) -> BeginResult {
    let reading = open_and_read(shop, strategy, entries);
    timeout_at(deadline(entries), reading)
        .await
        .unwrap_or_else(|_| Err(Error::deadline_passed().into()))
}

/// Opens the session on the first connection that works, and reads the snapshot.
async fn open_and_read(
    shop: &Shop,
    strategy: &'static Strategy,
    entries: &[BatchEntry<'_>],
) -> BeginResult {
    let mut request = read_request(strategy, entries);
    if strategy.transaction == Isolation::Autocommit {
        let (snapshot, connection) = shop
            .pool
            .read(move |db| {
                let request = request.clone();
                async move { read::read(db, &request).await }.boxed()
            })
            .await?;
        return Ok((DatabaseSession::autocommit(connection), snapshot));
    }
    let mut known_keys = Vec::new();
    if strategy.transaction == Isolation::Serializable {
        request.keys.clear();
        let requests = entries.iter().map(|entry| entry.command.idempotency().clone()).collect();
        let found = replay::look_up(shop, requests).await?;
        let found = found.iter().enumerate().filter(|(_, found)| found.is_some());
        known_keys.extend(found.map(|(at, _)| at));
    }
    let mut session = DatabaseSession::Explicit(shop.begin().await?);
    match read_in_transaction(&mut session, strategy, entries, &request).await {
        Ok(mut snapshot) => {
            snapshot.known_keys.append(&mut known_keys);
            Ok((session, snapshot))
        }
        Err(error) => {
            end_failed_session(session, &error).await;
            Err(error.into())
        }
    }
}

async fn read_in_transaction(
    session: &mut DatabaseSession,
    strategy: &'static Strategy,
    entries: &[BatchEntry<'_>],
    request: &ReadRequest,
) -> Result<ReadSnapshot, Error> {
    if strategy.transaction == Isolation::Serializable {
        sqlx::query!("set transaction isolation level serializable")
            .execute(session.connection())
            .await?;
    }
    if strategy.read == ReadMethod::Advisory {
        advisory::lock(session.connection(), &request.reads.lock_keys()).await?;
    }
    // A single command: only `batched`, which does not reserve, executes several.
    let reservation = entries.first().and_then(|entry| entry.command.reservation());
    match reservation.filter(|_| strategy.read == ReadMethod::Reserve) {
        Some(reservation) => {
            let reserved = reserve(session.connection(), &reservation).await?;
            let mut snapshot = read::read(session.connection(), request).await?;
            reserved.replace_in(&mut snapshot.state);
            Ok(snapshot)
        }
        None => Ok(read::read(session.connection(), request).await?),
    }
}

/// Returns the combined read of all commands.
fn read_request(strategy: &'static Strategy, entries: &[BatchEntry<'_>]) -> ReadRequest {
    let mut reads = ReadSet::default();
    let mut buyers: Vec<UserId> = Vec::new();
    for entry in entries {
        let ReadSet { items, account, orders, skip_locked_orders, buyer, entry_in } =
            entry.command.reads();
        reads.items.extend(items);
        reads.account = reads.account.or(account);
        reads.orders.extend(orders);
        reads.skip_locked_orders |= skip_locked_orders;
        reads.entry_in = reads.entry_in.or(entry_in);
        buyers.extend(buyer.filter(|_| strategy.read_counts_purchases()));
    }
    reads.items.sort();
    reads.items.dedup();
    reads.orders.sort();
    reads.orders.dedup();
    buyers.sort();
    buyers.dedup();
    let lock_values = match strategy.read {
        ReadMethod::RowLock => true,
        ReadMethod::Reserve => entries.iter().any(|entry| entry.command.reservation().is_none()),
        ReadMethod::Plain | ReadMethod::Advisory => false,
    };
    ReadRequest {
        reads,
        buyers,
        keys: entries.iter().map(|entry| entry.command.idempotency().id).collect(),
        lock_orders: strategy.transaction != Isolation::Autocommit,
        lock_values,
    }
}

/// Returns the results of the commands whose key has a record; `None` for the others.
async fn replay_known_keys(
    session: &mut DatabaseSession,
    entries: &[BatchEntry<'_>],
    snapshot: &ReadSnapshot,
) -> Result<Vec<Option<EntryResult>>, AttemptError> {
    let mut results: Vec<Option<EntryResult>> = entries.iter().map(|_| None).collect();
    let requests: Vec<&IdempotencyRequest> =
        snapshot.known_keys.iter().map(|at| entries[*at].command.idempotency()).collect();
    let replays = key_records::look_up(session.connection(), &requests).await?;
    for (at, replay) in snapshot.known_keys.iter().zip(replays) {
        let purged = || Error::Conflict("a key record was purged since the read".to_owned());
        results[*at] = Some(key_records::replayed(replay.ok_or_else(purged)?));
    }
    Ok(results)
}

/// Decides the commands in order, each on the state that the previous ones left.
async fn decide(
    session: &mut DatabaseSession,
    strategy: &'static Strategy,
    locks: &AcquiredLocks,
    entries: &[BatchEntry<'_>],
    mut before: ShopState,
    results: &mut [Option<EntryResult>],
) -> Result<BatchDecision, AttemptError> {
    check_fences(strategy, locks, &before)?;
    if strategy.locks_row_at_read() && !strategy.read_counts_purchases() {
        before.purchased = count_purchases(session, entries, &before).await?;
    }
    if let (Some(next), Some(entry)) = (&mut before.next_entry, entries.first()) {
        let mut keys = entry.command.reads().lock_keys().into_iter();
        next.fence = keys.find_map(|key| strategy.exclusion(&locks.guards).fence(&key));
        next.request_id = entry.options.request_id;
    }
    let mut after = before.clone();
    let mut changes = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if results[at].is_some() {
            continue;
        }
        match entry.command.decide(&mut after) {
            Ok(decided) => {
                let response = decided.response.stored()?;
                if decided.is_empty() {
                    results[at] = Some(Ok(Execution::now(response)));
                } else {
                    changes.insert(at, (decided, response));
                }
            }
            Err(rejection) => results[at] = Some(Err(rejection.into())),
        }
    }
    let reserves = strategy.read == ReadMethod::Reserve
        && entries.first().is_some_and(|entry| entry.command.reservation().is_some());
    if reserves && !changes.is_empty() && !all_reserved(&before, &after) {
        // The conditional update found too little; the read after it found enough.
        return Err(Error::Conflict("the row moved since the reservation".to_owned()).into());
    }
    Ok(BatchDecision { before, after, changes })
}

/// Returns whether every row whose value changes was reserved.
fn all_reserved(before: &ShopState, after: &ShopState) -> bool {
    let mut items = after.items.iter();
    let mut accounts = after.accounts.iter();
    items.all(|(sku, now)| {
        before.items.get(sku).is_none_or(|was| was.reserved || was.stock == now.stock)
    }) && accounts.all(|(user, now)| {
        let same = |was: &BalanceSnapshot| was.balance_cents == now.balance_cents;
        before.accounts.get(user).is_none_or(|was| was.reserved || same(was))
    })
}

/// Fails with [`AttemptError::StaleFences`] if a row has a higher fence than its lock: either the
/// lease is stale, or Redis lost its counter.
fn check_fences(
    strategy: &'static Strategy,
    locks: &AcquiredLocks,
    state: &ShopState,
) -> Result<(), AttemptError> {
    let exclusion = strategy.exclusion(&locks.guards);
    let items = state.items.iter().map(|(sku, item)| (sku.lock_key(), item.fence));
    let accounts = state.accounts.iter().map(|(user, account)| (user.lock_key(), account.fence));
    let is_stale =
        |(key, floor): &(LockKey, i64)| exclusion.fence(key).is_some_and(|fence| fence < *floor);
    let stale: Vec<(LockKey, i64)> = items.chain(accounts).filter(is_stale).collect();
    if stale.is_empty() { Ok(()) } else { Err(AttemptError::StaleFences(stale)) }
}
