//! The pool of connections: tests them, replaces dead ones, and reports an outage at once.
//!
//! Guarantees: a call returns within [`ACQUIRE_TIMEOUT`] and [`MIN_ATTEMPT_TIMEOUT`]. An outage
//! costs a request that timeout once: for [`FAILURE_CACHE_TIME`] after a failed call further ones
//! fail without waiting, and later ones within [`MIN_ATTEMPT_TIMEOUT`] until Postgres responds. A
//! connection that a firewall dropped without notice costs [`PING_TIMEOUT`] if it was idle for
//! [`TRUSTED_IDLE_TIME`]. Tests: `tests/it/silence.rs`.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::Instrument as _;

use super::address;
use super::connection::{Connection, Transaction};
use super::error_class::{ErrorClass, classify};
use super::pool_state::{PoolState, SILENCE};
use super::session;

/// Timeout of acquiring a connection: `unavailable` must be reported within 2 s.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Minimum time for an attempt on a connection; it takes less if Postgres responds at all.
const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(300);
/// Time after a failed call during which calls fail at once, so that the waits of one request do
/// not add up.
const FAILURE_CACHE_TIME: Duration = Duration::from_millis(250);
/// Idle time after which a connection is pinged before use. A busy pool pings none: a Postgres that
/// is slow under load should not have to accept new connections as well.
const TRUSTED_IDLE_TIME: Duration = Duration::from_secs(1);
/// Timeout of that ping; a connection without a response is replaced.
const PING_TIMEOUT: Duration = Duration::from_millis(300);
/// A transaction that commits something and changes nothing. Every user may execute it.
const COMMIT_PROBE: &str = "select pg_logical_emit_message(true, 'holdfast', '')";
/// Idle time after which a connection is closed: shorter than common timeouts of firewalls.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Pool {
    pool: PgPool,
    state: Arc<PoolState>,
}

impl Pool {
    /// Creates a pool of at most `size` connections, whose statements may `wait`. Does not connect
    /// yet.
    pub(super) fn new(options: PgConnectOptions, size: u32, wait: Option<Duration>) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(IDLE_TIMEOUT)
            // The first statement tests a connection that was used lately.
            .test_before_acquire(false)
            .before_acquire(|connection, metadata| {
                is_usable(connection, metadata.idle_for).map(Ok).boxed()
            })
            .after_connect(move |connection, _| begin_session(connection, wait).boxed())
            .connect_lazy_with(options);
        pool.into()
    }

    /// Acquires a connection that responds to a ping. If none is free in time, the error is
    /// [`ErrorClass::NoConnection`] if Postgres responds to others or callers use all connections;
    /// without a response on the connections it is [`ErrorClass::Unavailable`].
    pub async fn acquire(&self) -> Result<Connection, (ErrorClass, sqlx::Error)> {
        let ((), connection) = self.read(|connection| connection.ping().boxed()).await?;
        Ok(connection)
    }

    /// Acquires a connection that was used within [`TRUSTED_IDLE_TIME`] or responds to a ping, for
    /// a caller whose statement may fail on a dead one. The errors are those of
    /// [`Pool::acquire`].
    pub async fn acquire_unpinged(&self) -> Result<Connection, (ErrorClass, sqlx::Error)> {
        if let Some(failure) = self.recent_failure() {
            return Err(failure);
        }
        match timeout(MIN_ATTEMPT_TIMEOUT, self.pool.acquire()).await {
            Ok(Ok(live)) => Ok(Connection::new(live, false, &self.state)),
            // It distinguishes an outage from a busy pool.
            _ => self.acquire().await,
        }
    }

    /// Begins a transaction on a connection of its own. `begin` itself tests the connection: a ping
    /// before it would cost a round trip while the caller holds its locks.
    pub async fn begin(&self) -> Result<Transaction, (ErrorClass, sqlx::Error)> {
        let begun = self.execute_first(
            |connection| {
                async move { sqlx::raw_sql("begin").execute(connection).await.map(drop) }.boxed()
            },
            true,
        );
        let ((), connection) = begun.await?;
        Ok(Transaction(connection))
    }

    /// Executes a read, and returns its result and its connection. The read itself tests the
    /// connection, which saves the round trip of a ping; it may be repeated on another connection.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>
        + Send
        + Sync
        + 'static,
    ) -> Result<(T, Connection), (ErrorClass, sqlx::Error)> {
        self.execute_first(query, false).await
    }

    /// Returns whether the server accepts writes; a standby does not.
    pub async fn is_writable(&self) -> Result<bool, (ErrorClass, sqlx::Error)> {
        let query = "select current_setting('transaction_read_only') = 'off'";
        let read = self.read(move |db| sqlx::query_scalar(query).fetch_one(db).boxed());
        Ok(read.await?.0)
    }

    /// Returns whether commits wait, as for a synchronous standby that is away.
    pub fn do_commits_wait(&self) -> bool {
        self.state.commits_wait.load(Ordering::Relaxed)
    }

    /// Records that a write does not end, though Postgres responds to others. Until a commit ends
    /// again, [`Self::do_commits_wait`]: nothing ends a session that waits for a standby, so each
    /// further write would keep another one, until Postgres has none left for reads either.
    pub fn record_stuck_write(&self) {
        if !self.state.commits_wait.swap(true, Ordering::Relaxed) {
            tracing::warn!("Postgres responds, and a write does not end: is its standby away?");
            tokio::spawn(self.clone().wait_for_commit());
        }
    }

    /// Commits until that succeeds, or this is the last clone.
    async fn wait_for_commit(self) {
        while self.has_other_users() && !self.does_commit().await {
            sleep(FAILURE_CACHE_TIME).await;
        }
        self.state.commits_wait.store(false, Ordering::Relaxed);
        tracing::info!("commits end again");
    }

    /// Waits for one commit for as long as Postgres responds. Returns whether it ended.
    async fn does_commit(&self) -> bool {
        let Ok(mut connection) = self.acquire().await else { return false };
        // A statement may be in flight on it.
        connection.close_on_drop(true);

        let committed = tokio::select! {
            committed = sqlx::raw_sql(COMMIT_PROBE).execute(&mut *connection) => committed.is_ok(),
            () = self.silence() => false,
        };
        connection.close_on_drop(!committed);
        committed
    }

    /// Returns the error of a call that failed within the last [`FAILURE_CACHE_TIME`], if Postgres
    /// has not responded since: another call would fail too.
    pub fn recent_failure(&self) -> Option<(ErrorClass, sqlx::Error)> {
        let cause = self.state.failure_within(FAILURE_CACHE_TIME)?;
        let error = io::Error::new(io::ErrorKind::TimedOut, cause);
        Some((ErrorClass::Unavailable, error.into()))
    }

    /// Waits until Postgres is silent: a call failed [`SILENCE`] or more after this one began, and
    /// no call has received a response since it began. A statement in flight gets none either. If
    /// there is no other call by then, it sends a ping.
    pub async fn silence(&self) {
        let silent_from = Instant::now() + SILENCE;
        let ping = async {
            sleep_until(silent_from).await;

            // Its failure is recorded. A response says that the statement is slow.
            while self.acquire().await.is_err() {
                sleep(FAILURE_CACHE_TIME).await;
            }
            pending::<()>().await;
        };

        tokio::select! {
            () = self.state.failure_from(silent_from) => {}
            () = ping => {}
        }
    }

    /// Executes the first statement on a connection; with `begins`, a transaction is open then.
    async fn execute_first<T: Send + 'static>(
        &self,
        statement: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>
        + Send
        + Sync
        + 'static,
        begins: bool,
    ) -> Result<(T, Connection), (ErrorClass, sqlx::Error)> {
        if let Some(failure) = self.recent_failure() {
            return Err(failure);
        }

        let pool = self.clone();
        let call = async move {
            let began = Instant::now();
            match pool.try_connections(pool.begin_call(began), statement).await {
                Ok((result, live)) => {
                    pool.state.record_response();
                    Ok((result, Connection::new(live, begins, &pool.state)))
                }
                Err(error) => Err(pool.record_failure(error, began)),
            }
        };
        // In a task: a caller that gives up must neither leave a connection in the middle of a
        // statement, nor hide from others whether Postgres responds.
        let called = tokio::spawn(call.in_current_span()).await;
        called.unwrap_or(Err((ErrorClass::Unavailable, sqlx::Error::WorkerCrashed)))
    }

    /// Executes `statement` on one connection after the other until one works, finally on a new
    /// one: idle connections may have died.
    async fn try_connections<T>(
        &self,
        until: Instant,
        statement: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>,
    ) -> Result<(T, PoolConnection<Postgres>), sqlx::Error> {
        let mut dead = 0;
        loop {
            let acquired = timeout_at(until, self.pool.acquire()).await;
            let mut connection = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;

            // A caller whose connection arrives at the last moment still has time to use it.
            let attempt_until = until.max(Instant::now() + MIN_ATTEMPT_TIMEOUT);
            let executed = timeout_at(attempt_until, statement(&mut connection)).await;
            let silent = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
            let error = match executed.unwrap_or_else(|_| silent()) {
                Ok(result) => return Ok((result, connection)),
                Err(error) => error,
            };

            // A late response would be read as that of the next statement.
            drop(connection.detach());
            let is_dead = classify(&error).ends_session();
            // All of the pool may have died; one more attempt is on a new connection.
            if !is_dead || dead == self.max_connections() || Instant::now() >= until {
                return Err(error);
            }
            dead += 1;
        }
    }

    /// Classifies the error of a call that began at `began`. Records an outage.
    fn record_failure(&self, error: sqlx::Error, began: Instant) -> (ErrorClass, sqlx::Error) {
        let error = address::name_missing_socket(error, &self.connect_options());
        let is_busy = !self.state.is_silent_since(began) || self.are_all_in_use();
        let class = match classify(&error) {
            // sqlx reports the same whether all connections are in use or none can be made.
            ErrorClass::NoConnection if matches!(error, sqlx::Error::PoolTimedOut) && !is_busy => {
                ErrorClass::Unavailable
            }
            class => class,
        };

        let outage = (class == ErrorClass::Unavailable).then(|| error.to_string());
        if self.state.record_failure(began, outage) {
            tokio::spawn(self.clone().wait_for_response());
        }
        (class, error)
    }

    /// Pings until Postgres responds, or this is the last clone: in an outage, callers do not wait
    /// long enough for a new connection to a distant server.
    async fn wait_for_response(self) {
        while self.state.is_outage() && self.has_other_users() {
            sleep(FAILURE_CACHE_TIME).await;
            let until = Instant::now() + ACQUIRE_TIMEOUT;
            if self.try_connections(until, |connection| connection.ping().boxed()).await.is_ok() {
                self.state.record_response();
            }
        }
    }

    fn has_other_users(&self) -> bool {
        Arc::strong_count(&self.state) > 1 && !self.pool.is_closed()
    }

    /// Records that a call begins, and returns its deadline. While other calls wait for a response,
    /// it is theirs, and in an outage it is near: a caller may have waited for such a call already.
    fn begin_call(&self, began: Instant) -> Instant {
        let unanswered_since = self.state.record_begin();
        let near = began + MIN_ATTEMPT_TIMEOUT;

        if self.state.is_outage() {
            return near;
        }
        // They wait for a free connection, not for Postgres.
        if self.are_all_in_use() {
            return began + ACQUIRE_TIMEOUT;
        }
        (unanswered_since + ACQUIRE_TIMEOUT).max(near)
    }

    fn are_all_in_use(&self) -> bool {
        self.state.in_use.load(Ordering::Relaxed) >= self.max_connections()
    }

    pub(super) fn connect_options(&self) -> Arc<PgConnectOptions> {
        self.pool.connect_options()
    }

    pub fn connections(&self) -> (u32, u32) {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        (self.pool.size().saturating_sub(idle), idle)
    }

    pub fn max_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    /// Creates a pool at the same address for transactions that a person steps through: its
    /// sessions may wait, and be idle in a transaction, for up to `timeout`.
    pub fn with_session_timeout(&self, size: u32, timeout: Duration) -> Self {
        let options = self.connect_options().as_ref().clone();
        Self::new(options, size, Some(timeout))
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Returns whether the connection can be handed out: it was used lately, or responds.
async fn is_usable(connection: &mut PgConnection, idle_for: Duration) -> bool {
    idle_for < TRUSTED_IDLE_TIME
        || matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(())))
}

async fn begin_session(connection: &mut PgConnection, wait: Option<Duration>) -> sqlx::Result<()> {
    match session::apply(connection, wait).await {
        // sqlx would try again and hide the cause. The connection is lost; its first statement
        // says why.
        Err(error) if classify(&error) == ErrorClass::Unavailable => Ok(()),
        applied => applied,
    }
}

impl From<PgPool> for Pool {
    fn from(pool: PgPool) -> Self {
        Self { pool, state: Arc::default() }
    }
}
