//! The connection of one attempt, with or without a transaction around the read and the write, and
//! the read on it.

use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::{Instant, timeout};

use super::entries::Batch;
use super::entry::{BatchEntry, EntryResult};
use crate::UserId;
use crate::command::ReadSet;
use crate::db::{Connection, ErrorClass, Pool, Transaction};
use crate::failure::Error;
use crate::idempotency::IdempotencyRequest;
use crate::probe::Probe;
use crate::store::read::{self, ReadRequest, ReadSnapshot};
use crate::store::{conditional_update, key_records};
use crate::strategy::data_path::DataPath;
use crate::strategy::{Isolation, ReadMethod, advisory};

const COMMIT_TIMEOUT: Duration = Duration::from_secs(2);
const COMMIT_SLACK: Duration = Duration::from_millis(2_500);

/// A connection that is closed on drop, so that no other command gets it in the middle of a
/// statement. Postgres then rolls back an open transaction.
#[derive(Debug)]
pub enum DatabaseSession {
    /// `None` between two statements.
    Autocommit(Option<Connection>),
    Explicit(Transaction),
}

impl DatabaseSession {
    /// Reads what the commands are decided on, in the way of the strategy.
    pub async fn read(batch: Batch<'_>) -> Result<(Self, ReadSnapshot), Error> {
        let Batch { shop, strategy, entries, .. } = batch;
        let pool = &shop.pool;
        let mut request = read_request(batch);

        if strategy.transaction == Isolation::Autocommit {
            // Repeated by the pool on another connection if that of the first attempt is dead:
            // a read that changes nothing may be.
            let (snapshot, connection) = pool
                .read(move |db| {
                    let request = request.clone();
                    async move { read::read(db, &request).await }.boxed()
                })
                .await?;
            return Ok((Self::autocommit(connection), snapshot));
        }

        let mut known_keys = Vec::new();
        if strategy.transaction == Isolation::Serializable {
            // Before the transaction: a read of absent keys in it would take predicate locks on
            // index pages, and abort others whose keys are near.
            request.keys.clear();
            let requests = entries.iter().map(|entry| entry.command.idempotency().clone());
            let found = key_records::look_up_in(pool, requests.collect()).await?;
            let found = found.iter().enumerate().filter(|(_, found)| found.is_some());
            known_keys.extend(found.map(|(at, _)| at));
        }

        let mut session = DatabaseSession::Explicit(pool.begin().await?);
        match session.read_in_transaction(batch, &request).await {
            Ok(mut snapshot) => {
                snapshot.known_keys.append(&mut known_keys);
                Ok((session, snapshot))
            }
            Err(error) => {
                session.end_failed(&error).await;
                Err(error)
            }
        }
    }

    async fn read_in_transaction(
        &mut self,
        batch: Batch<'_>,
        request: &ReadRequest,
    ) -> Result<ReadSnapshot, Error> {
        let Batch { strategy, entries, .. } = batch;
        let db = self.connection();
        if strategy.transaction == Isolation::Serializable {
            sqlx::query!("set transaction isolation level serializable").execute(&mut *db).await?;
        }

        if entries.iter().any(|entry| matches!(entry.context.probe(), Probe::Lab(_))) {
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
        let update = entries.first().and_then(|entry| entry.command.conditional_update());
        let mut snapshot = match update.filter(|_| strategy.read == ReadMethod::ConditionalUpdate) {
            Some(update) => conditional_update::update_and_read(db, &update, request, true).await?,
            None => read::read(db, request).await?,
        };

        if let Some(path) = batch.data_path() {
            let commands = entries.iter().map(|entry| entry.command).collect();
            path.read(db, commands, &mut snapshot).await?;
        }
        Ok(snapshot)
    }

    /// Applies the deltas of a command, without a condition, because it was checked on an earlier
    /// read, and reads the rows as they were before. Returns `None` if its deltas are not known in
    /// advance: its rows have been locked since that read.
    pub async fn update_unchecked(
        &mut self,
        batch: Batch<'_>,
    ) -> Result<Option<ReadSnapshot>, Error> {
        let update = batch.entries.first().and_then(|entry| entry.command.conditional_update());
        let Some(update) = update else { return Ok(None) };

        let request = read_request(batch);
        let db = self.connection();
        Ok(Some(conditional_update::update_and_read(db, &update, &request, false).await?))
    }

    /// Looks up the responses of the commands at `known_keys`, whose keys have a record.
    pub async fn replay(
        &mut self,
        entries: &[BatchEntry<'_>],
        known_keys: &[usize],
        replayed: &mut [Option<EntryResult>],
    ) -> Result<(), Error> {
        let requests: Vec<&IdempotencyRequest> =
            known_keys.iter().map(|at| entries[*at].command.idempotency()).collect();
        let replays = key_records::look_up(self.connection(), &requests).await?;

        for (at, replay) in known_keys.iter().zip(replays) {
            let Some(replay) = replay else {
                // Read again: without the record, the command is new.
                return Err(Error::Conflict("a key record was purged since the read".to_owned()));
            };
            replayed[*at] = Some(replay);
        }
        Ok(())
    }

    pub fn autocommit(mut connection: Connection) -> Self {
        connection.close_on_drop(true);
        DatabaseSession::Autocommit(Some(connection))
    }

    pub fn connection(&mut self) -> &mut PgConnection {
        match self {
            DatabaseSession::Autocommit(Some(connection)) => connection,
            DatabaseSession::Autocommit(None) => {
                unreachable!("nothing is sent after it is given away")
            }
            DatabaseSession::Explicit(tx) => tx,
        }
    }

    /// Moves the session out, between two statements. Nothing can be sent on the rest.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, DatabaseSession::Autocommit(None))
    }

    /// Returns the connection of an autocommit session to the pool, between two statements. Nothing
    /// can be sent on the session until it is reopened.
    pub fn return_to_pool(&mut self) {
        if let DatabaseSession::Autocommit(connection) = self
            && let Some(mut connection) = connection.take()
        {
            connection.close_on_drop(false);
        }
    }

    pub async fn reopen(&mut self, pool: &Pool) -> Result<(), Error> {
        if let DatabaseSession::Autocommit(None) = self {
            *self = Self::autocommit(pool.acquire_unpinged().await?);
        }
        Ok(())
    }

    /// Commits an explicit transaction; rolls it back while other commits wait.
    pub async fn commit(self, pool: &Pool) -> Result<(), Error> {
        if let Err(refused) = refuse_while_commits_wait(pool) {
            self.end().await;
            return Err(refused);
        }
        let DatabaseSession::Explicit(tx) = self else { return Ok(()) };
        match timeout(COMMIT_TIMEOUT, tx.commit()).await {
            Ok(committed) => Ok(committed?),
            Err(_) => {
                pool.record_stuck_write();
                Err(Error::postgres_timeout())
            }
        }
    }

    pub async fn end_failed(self, error: &Error) {
        let is_ended = matches!(error, Error::Postgres(ErrorClass::SessionEnded, _));
        if is_ended || error.is_outage() {
            // A rollback would wait for a server that does not respond.
            drop(self);
        } else {
            self.end().await;
        }
    }

    /// Ends the session, so that its connection can be reused: a transaction that is open is rolled
    /// back.
    pub async fn end(mut self) {
        self.return_to_pool();
        if let DatabaseSession::Explicit(tx) = self {
            let _ = timeout(COMMIT_TIMEOUT, tx.rollback()).await;
        }
    }
}

/// Fails while commits wait, as for a standby: each further one would keep its session.
pub fn refuse_while_commits_wait(pool: &Pool) -> Result<(), Error> {
    if pool.do_commits_wait() {
        let cause = "an earlier commit has not ended".to_owned();
        return Err(Error::Postgres(ErrorClass::CannotWrite, cause));
    }
    Ok(())
}

/// Returns what the commands of a batch read together, each row and buyer once.
fn read_request(batch: Batch<'_>) -> ReadRequest {
    let Batch { strategy, entries, .. } = batch;
    let mut reads = ReadSet::default();
    let mut buyers: Vec<UserId> = Vec::new();
    for entry in entries {
        let ReadSet { items, account, orders, skip_locked_orders, buyer, descriptions, next_entry } =
            entry.command.reads();
        reads.items.extend(items);
        reads.account = reads.account.or(account);
        reads.orders.extend(orders);
        reads.skip_locked_orders |= skip_locked_orders;
        reads.descriptions |= descriptions;
        reads.next_entry |= next_entry;
        buyers.extend(buyer.filter(|_| strategy.counts_with_read()));
    }
    // Sorted, because rows are locked in this order.
    reads.items.sort();
    reads.items.dedup();
    reads.orders.sort();
    reads.orders.dedup();
    buyers.sort();
    buyers.dedup();

    let lock_values = match strategy.read {
        ReadMethod::RowLock => true,
        ReadMethod::ConditionalUpdate | ReadMethod::CheckThenUpdate => {
            !entries.iter().all(|entry| entry.command.conditional_update().is_some())
        }
        ReadMethod::Plain | ReadMethod::Advisory => false,
    };
    ReadRequest {
        reads,
        buyers,
        keys: entries.iter().map(|entry| entry.command.idempotency().id).collect(),
        lock_orders: strategy.transaction != Isolation::Autocommit,
        lock_items: lock_values && batch.data_path().is_none_or(DataPath::locks_items),
        lock_account: lock_values,
    }
}
