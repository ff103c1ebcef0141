//! Executes a batch under its locks: reads, decides and writes, with retries.

use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_lock::LockKey;
use rand::RngExt as _;
use sqlx::AssertSqlSafe;
use tokio::time::{Instant, sleep};
use tracing::debug_span;

use super::batch::{AttemptError, Batch, BatchDecision, LockState, begin_step, pass_point};
use super::entry::{BatchEntry, EntryResult};
use super::locks::AcquiredLocks;
use super::resolve::resolve_outcome;
use super::session::DatabaseSession;
use super::write::write;
use crate::budget::BudgetPermit;
use crate::metrics::define_metrics;
use crate::probe::{Point, Probe};
use crate::shop::UserId;
use crate::shop::command::ReadSet;
use crate::shop::command::state::{BalanceSnapshot, ShopState};
use crate::shop::failure::{Error, Execution, Failure, Rejection};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::read::{self, ReadRequest, ReadSnapshot};
use crate::shop::store::{CommandWrite, conditional_update, key_records};
use crate::shop::strategy::{Isolation, ReadMethod, advisory};

/// Time to wait for one of the lab's connections: as long as for a lock. It takes none of another.
const LAB_CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

const COMMIT_SLACK: Duration = Duration::from_millis(2_500);

define_metrics! {
    STALE_FENCES: "holdfast_stale_fences_total", Counter [] &[],
        "Reads of a row with a higher fence than the lock: it was lost, or Redis lost its counter";
}

pub(super) struct BegunAttempt {
    pub(super) session: DatabaseSession,
    pub(super) snapshot: ReadSnapshot,
    _lab_permit: Option<BudgetPermit>,
}

pub(super) type ReadResult = Result<BegunAttempt, AttemptError>;

/// Executes the commands under their shared `locks`, and returns one result per command. The first
/// attempt continues with `begun`, if given.
pub(super) async fn execute(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
    mut begun: Option<ReadResult>,
) -> (Vec<EntryResult>, LockState) {
    let mut attempts = 1;
    loop {
        let begun = match begun.take() {
            Some(begun) => begun,
            None => begin(batch).await,
        };
        let failure = match attempt(batch, locks, begun).await {
            Ok(results) => return (results, LockState::Held),
            Err(AttemptError::StaleFences(stale)) => {
                metrics::counter!(STALE_FENCES).increment(1);
                match locks.raise_fences(stale).await {
                    Ok(()) => continue,
                    Err(error @ Error::LockLost(_)) => {
                        return (batch.fail_all(error), LockState::Lost);
                    }
                    Err(error) => return (batch.fail_all(error), LockState::Held),
                }
            }
            Err(AttemptError::UnknownOutcome(error, write, results)) => {
                return resolve_outcome(&batch.shop.pool, error, &write, results).await;
            }
            Err(AttemptError::Failed(failure)) => failure,
        };
        match failure {
            Failure::Error(Error::Conflict(_)) if attempts < batch.strategy.attempts => {
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
                return execute_halves(batch, locks).await;
            }
            Failure::Error(error) if error.is_outage() => {
                return (batch.fail_all(error.clone()), LockState::HeldInOutage(error));
            }
            failure => return (batch.fail_all(failure), LockState::Held),
        }
    }
}

async fn execute_halves(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
) -> (Vec<EntryResult>, LockState) {
    let (front, back) = batch.entries.split_at(batch.entries.len() / 2);
    let (front, back) = (Batch { entries: front, ..batch }, Batch { entries: back, ..batch });
    let (mut results, state) = Box::pin(execute(front, locks, None)).await;
    let unexecuted = match &state {
        LockState::Held => None,
        LockState::HeldInOutage(outage) | LockState::LeaveToExpire(outage) => Some(outage.clone()),
        LockState::Lost => Some(Error::GivenUp("the first half of its batch lost the lock")),
    };
    if let Some(error) = unexecuted {
        results.extend(back.fail_all(error));
        return (results, state);
    }
    let (more, state) = Box::pin(execute(back, locks, None)).await;
    results.extend(more);
    (results, state)
}

async fn attempt(
    batch: Batch<'_>,
    locks: &mut AcquiredLocks,
    begun: ReadResult,
) -> Result<Vec<EntryResult>, AttemptError> {
    let BegunAttempt { mut session, snapshot, _lab_permit } = begun?;
    if Instant::now() >= batch.deadline() {
        // The deadline passed since the read, e.g. while the idempotency locks were acquired.
        session.end_without_commit().await;
        return Err(Error::deadline_passed().into());
    }
    let deciding = async {
        let decided = decide(batch, &mut session, locks, snapshot).await?;
        if batch.entries.iter().any(|entry| entry.options.probe.yields_connection()) {
            session.return_to_pool();
        }
        let value = |at, key: &LockKey| decided.value_before(at, key);
        pass_point(batch.positions(), Point::Read, locks, value).await;
        Ok(decided)
    };
    let step = begin_step(batch.stages(), |held| debug_span!(parent: held, "decide"));
    let decided = batch.in_time(deciding).await?;
    drop(step);
    let decided = match decided {
        Ok(decided) => decided,
        Err(AttemptError::Failed(failure)) => {
            return Err(AttemptError::after(session, failure).await);
        }
        Err(stop) => {
            session.end_without_commit().await;
            return Err(stop);
        }
    };
    if decided.writes.is_empty() {
        session.end_without_commit().await;
        return Ok(decided.results);
    }
    let _step = begin_step(batch.stages(), |held| debug_span!(parent: held, "write"));
    write(batch, session, locks, decided).await
}

/// Begins an attempt within the deadline: reads the snapshot, once the lab may use one more
/// connection if the batch is the lab's.
pub(super) async fn begin(batch: Batch<'_>) -> ReadResult {
    let _step = begin_step(batch.stages(), |held| debug_span!(parent: held, "read"));
    let reading = async {
        let _lab_permit = match batch.is_in_lab() {
            true => Some(lab_permit(batch).await?),
            false => None,
        };
        let (session, snapshot) = read_in_session(batch).await?;
        Ok(BegunAttempt { session, snapshot, _lab_permit })
    };
    batch.in_time(reading).await?
}

async fn lab_permit(batch: Batch<'_>) -> Result<BudgetPermit, AttemptError> {
    let shop = batch.shop;
    // The others of a batch wait for its first user's permit, as they would during its pause.
    let user = batch.entries.first().map(|entry| entry.command.idempotency().user.0);
    tokio::select! {
        Some(permit) = shop.lab_connections.acquire(user.unwrap_or_default()) => Ok(permit),
        () = shop.pool.silence() => Err(Error::postgres_timeout().into()),
        () = sleep(LAB_CONNECTION_TIMEOUT) => Err(Rejection::LabBusy.into()),
    }
}

async fn read_in_session(
    batch: Batch<'_>,
) -> Result<(DatabaseSession, ReadSnapshot), AttemptError> {
    let Batch { shop, strategy, .. } = batch;
    let mut request = read_request(batch);
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
        let requests = batch.entries.iter().map(|entry| entry.command.idempotency().clone());
        let found = key_records::look_up_in(&shop.pool, requests.collect()).await?;
        known_keys.extend(
            found.iter().enumerate().filter(|(_, found)| found.is_some()).map(|(at, _)| at),
        );
    }
    let mut session = DatabaseSession::Explicit(shop.pool.begin().await?);
    match read_in_transaction(batch, &mut session, &request).await {
        Ok(mut snapshot) => {
            snapshot.known_keys.append(&mut known_keys);
            Ok((session, snapshot))
        }
        Err(error) => Err(AttemptError::after(session, error.into()).await),
    }
}

async fn read_in_transaction(
    batch: Batch<'_>,
    session: &mut DatabaseSession,
    request: &ReadRequest,
) -> Result<ReadSnapshot, Error> {
    let (strategy, db) = (batch.strategy, session.connection());
    if strategy.transaction == Isolation::Serializable {
        sqlx::query!("set transaction isolation level serializable").execute(&mut *db).await?;
    }
    if batch.entries.iter().any(|entry| matches!(entry.options.probe, Probe::Lab(_))) {
        // The lab pauses a transaction until the deadline, longer than a session may be idle in
        // one: a request for up to 8 s, a game for minutes.
        let longest = batch.deadline().saturating_duration_since(Instant::now()) + COMMIT_SLACK;
        let timeout =
            format!("set local idle_in_transaction_session_timeout = {}", longest.as_millis());
        sqlx::raw_sql(AssertSqlSafe(timeout)).execute(&mut *db).await?;
    }
    if strategy.read == ReadMethod::Advisory {
        advisory::lock(db, &request.reads.lock_keys()).await?;
    }
    // A single command: only `batched`, which updates nothing at the read, executes several.
    let update = batch.entries.first().and_then(|entry| entry.command.conditional_update());
    Ok(match update.filter(|_| strategy.read == ReadMethod::ConditionalUpdate) {
        Some(update) => conditional_update::execute_and_read(db, &update, request).await?,
        None => read::read(db, request).await?,
    })
}

fn read_request(batch: Batch<'_>) -> ReadRequest {
    let Batch { strategy, entries, .. } = batch;
    let mut reads = ReadSet::default();
    let mut buyers: Vec<UserId> = Vec::new();
    for entry in entries {
        let ReadSet { items, account, orders, skip_locked_orders, buyer, next_entry } =
            entry.command.reads();
        reads.items.extend(items);
        reads.account = reads.account.or(account);
        reads.orders.extend(orders);
        reads.skip_locked_orders |= skip_locked_orders;
        reads.next_entry |= next_entry;
        buyers.extend(buyer.filter(|_| strategy.counts_with_read()));
    }
    reads.items.sort();
    reads.items.dedup();
    reads.orders.sort();
    reads.orders.dedup();
    buyers.sort();
    buyers.dedup();
    let updates = |entry: &BatchEntry<'_>| entry.command.conditional_update().is_some();
    let lock_values = match strategy.read {
        ReadMethod::RowLock => true,
        ReadMethod::ConditionalUpdate => !entries.iter().all(updates),
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

async fn replay_known_keys(
    batch: Batch<'_>,
    session: &mut DatabaseSession,
    known_keys: &[usize],
) -> Result<Vec<Option<EntryResult>>, AttemptError> {
    let mut results: Vec<Option<EntryResult>> = batch.entries.iter().map(|_| None).collect();
    let requests: Vec<&IdempotencyRequest> =
        known_keys.iter().map(|at| batch.entries[*at].command.idempotency()).collect();
    let replays = key_records::look_up(session.connection(), &requests).await?;
    for (at, replay) in known_keys.iter().zip(replays) {
        let purged = || Error::Conflict("a key record was purged since the read".to_owned());
        results[*at] = Some(replay.ok_or_else(purged)?);
    }
    Ok(results)
}

/// Decides the commands in order, each on the state that the previous ones left.
async fn decide(
    batch: Batch<'_>,
    session: &mut DatabaseSession,
    locks: &AcquiredLocks,
    snapshot: ReadSnapshot,
) -> Result<BatchDecision, AttemptError> {
    let Batch { strategy, entries, .. } = batch;
    let replayed = replay_known_keys(batch, session, &snapshot.known_keys).await?;
    let mut before = snapshot.state;
    check_fences(batch, locks, &before)?;
    if let (Some(next), Some(entry)) = (&mut before.next_entry, entries.first()) {
        let mut keys = entry.command.reads().lock_keys().into_iter();
        next.fence = keys.find_map(|key| strategy.exclusion(&locks.guards).fence(&key));
        next.request_id = entry.options.request_id;
    }
    let mut after = before.clone();
    let (mut writes, mut results) = (Vec::new(), Vec::with_capacity(entries.len()));
    for ((position, BatchEntry { command, options, .. }), replayed) in
        batch.positions().zip(replayed)
    {
        if let Some(replayed) = replayed {
            results.push(replayed);
            continue;
        }
        match command.decide(&mut after) {
            Ok(changes) => {
                let response = changes.stored_response()?;
                results.push(Ok(Execution::now(response.clone())));
                if !changes.is_empty() {
                    let (idempotency, request_id) =
                        (command.idempotency().clone(), options.request_id);
                    writes.push(CommandWrite {
                        position,
                        idempotency,
                        changes,
                        response,
                        request_id,
                    });
                }
            }
            Err(rejection) => results.push(Err(rejection.into())),
        }
    }
    let updates = strategy.read == ReadMethod::ConditionalUpdate
        && entries.first().is_some_and(|entry| entry.command.conditional_update().is_some());
    if updates && !writes.is_empty() && !all_updated(&before, &after) {
        // The conditional update found too little; the read after it found enough.
        return Err(Error::Conflict("the row changed since the update".to_owned()).into());
    }
    Ok(BatchDecision { before, after, writes, results })
}

fn all_updated(before: &ShopState, after: &ShopState) -> bool {
    let mut items = after.items.iter();
    let mut accounts = after.accounts.iter();
    items.all(|(sku, now)| {
        before.items.get(sku).is_none_or(|was| was.is_updated || was.stock == now.stock)
    }) && accounts.all(|(user, now)| {
        let same = |was: &BalanceSnapshot| was.balance_cents == now.balance_cents;
        before.accounts.get(user).is_none_or(|was| was.is_updated || same(was))
    })
}

/// Fails with [`AttemptError::StaleFences`] if a row has a higher fence than its lock: either the
/// lease is stale, or Redis lost its counter.
fn check_fences(
    batch: Batch<'_>,
    locks: &AcquiredLocks,
    state: &ShopState,
) -> Result<(), AttemptError> {
    let exclusion = batch.strategy.exclusion(&locks.guards);
    let items = state.items.iter().map(|(sku, item)| (sku.lock_key(), item.fence));
    let accounts = state.accounts.iter().map(|(user, account)| (user.lock_key(), account.fence));
    let is_stale =
        |(key, floor): &(LockKey, i64)| exclusion.fence(key).is_some_and(|fence| fence < *floor);
    let stale: Vec<(LockKey, i64)> = items.chain(accounts).filter(is_stale).collect();
    if stale.is_empty() { Ok(()) } else { Err(AttemptError::StaleFences(stale)) }
}
