//! Postgres: the pool, the migrations, and the classification of errors.
//!
//! Guarantees: every session has timeouts, so that a process that is paused in a transaction blocks
//! others for a bounded time; an acknowledged commit is on disk ([`check_server`] rejects a server
//! with `synchronous_commit = off`). It does not retry transactions: only their owner can repeat
//! one as a whole.

mod migrate;

use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use log::LevelFilter;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection, PgConnection, PgPool, Postgres};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

pub use migrate::{MIGRATIONS, migrate};

/// Timeout of acquiring a connection: `unavailable` must be reported within 2 s.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Minimum time for an attempt on a connection; it takes less if Postgres responds at all.
const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(300);

/// Timeout of [`check_reachable`]; a running server accepts a connection sooner.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Duration from which the log, at level debug, lists a statement as slow.
const SLOW_STATEMENT: Duration = Duration::from_secs(1);

/// The settings of every session. A statement may take 4 s, of which it may wait 3 s for a row. A
/// transaction that is idle for 10 s, the default TTL of a lock, is ended.
///
/// The data is in memory, or on an SSD. At the default cost of a random page (4), Postgres plans to
/// read a small table as a whole for every order, and keeps that plan when the table has grown.
/// Statements over arrays are planned once: if planned for each list of values, the write of one
/// order costs four times as much.
const SESSION_SETTINGS: [(&str, &str); 6] = [
    ("statement_timeout", "4s"),
    ("lock_timeout", "3s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("timezone", "UTC"),
    ("random_page_cost", "1.1"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// Errors of the connection, the server's settings, and the schema.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("DATABASE_URL can't be read: {0}. It looks like postgres://user:password@host/name")]
    Address(sqlx::Error),
    #[error("Postgres does not answer: {0}. Is it running, and is DATABASE_URL right?")]
    Unreachable(sqlx::Error),
    #[error(
        "Postgres runs with {name} = {value}: a commit it has acknowledged can be lost, and an \
         order with it. Set {name} = on"
    )]
    Unsafe { name: String, value: String },
    #[error("the schema is not up to date: {0}. Run `holdfast migrate`")]
    Schema(String),
    /// The database has the migrations of the first version, which `0101` replaced.
    #[error(
        "this database has the schema of Holdfast's first version, which this version replaced and \
         cannot upgrade: export what you need with pg_dump while that version runs, then use an \
         empty database, or with `holdfast up` another --data folder"
    )]
    Superseded,
    #[error(
        "this database was made while this version of Holdfast was developed (migration {0} had \
         another text) and cannot be upgraded: use an empty database, or with `holdfast up` \
         another --data folder"
    )]
    Changed(i64),
    #[error(
        "this database has migration {0}, which this version of Holdfast does not know: use the \
         version that applied it, or a later one"
    )]
    Newer(i64),
    /// A migration did not get a lock within its timeout, in several attempts.
    #[error(
        "a migration did not get its lock within {attempts} attempts, because another session held \
         it: end that session's transaction, then run `holdfast migrate` again"
    )]
    MigrationBlocked { attempts: u32 },
    #[error("the migration failed: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    #[error("Postgres: {0}")]
    Other(#[from] sqlx::Error),
}

/// A pool whose connections all live on one runtime, independent of the caller's.
///
/// A connection belongs to the runtime that opened it, and the runtime of an HTTP worker ends with
/// the worker: the connections that it opened would break in use by others.
#[derive(Debug, Clone)]
pub struct Pool {
    pool: PgPool,
    runtime: Handle,
}

impl Pool {
    /// Acquires a connection that responds to a ping. A timeout is [`ErrorClass::Overloaded`] if
    /// all connections are in use, and otherwise [`ErrorClass::Unavailable`].
    pub async fn acquire(&self) -> Result<PoolConnection<Postgres>, (ErrorClass, sqlx::Error)> {
        let ((), connection) = self.read(|connection| connection.ping().boxed()).await?;
        Ok(connection)
    }

    /// Begins a transaction on a connection of its own. `begin` itself tests the connection: a ping
    /// before it would cost a round trip while the caller holds its locks.
    pub async fn begin(&self) -> Result<Transaction, (ErrorClass, sqlx::Error)> {
        self.with_live_connection(Transaction::begin).await
    }

    /// Executes a read, and returns its result and its connection. The read itself tests the
    /// connection, which saves the round trip of a ping; it may be repeated on another connection.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>
        + Clone
        + Send
        + 'static,
    ) -> Result<(T, PoolConnection<Postgres>), (ErrorClass, sqlx::Error)> {
        self.with_live_connection(move |mut connection, until| {
            let query = query.clone();
            async move {
                let result = timeout_at(until, query(&mut connection)).await;
                match result.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                    Ok(result) => Ok((result, connection)),
                    Err(error) => {
                        drop(connection.detach());
                        Err(error)
                    }
                }
            }
        })
        .await
    }

    /// Executes `attempt` on one connection after the other until one works, finally on a new one:
    /// idle connections may have died.
    async fn with_live_connection<T, F>(
        &self,
        attempt: impl Fn(PoolConnection<Postgres>, Instant) -> F + Send + 'static,
    ) -> Result<T, (ErrorClass, sqlx::Error)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, sqlx::Error>> + Send,
    {
        let pool = self.pool.clone();
        let max_connections = pool.options().get_max_connections();
        let task = self.runtime.spawn(async move {
            let until = Instant::now() + ACQUIRE_TIMEOUT;
            let mut dead = 0;
            loop {
                let connection = timeout_at(until, pool.acquire()).await;
                let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
                // A caller whose connection arrives at the last moment still has time to use it.
                match attempt(connection, until.max(Instant::now() + MIN_ATTEMPT_TIMEOUT)).await {
                    Err(error)
                        if classify(&error) == ErrorClass::Unavailable
                            && dead < max_connections =>
                    {
                        dead += 1;
                    }
                    done => return done,
                }
            }
        });
        task.await.unwrap_or(Err(sqlx::Error::WorkerCrashed)).map_err(|error| {
            let all_in_use = self.pool.size() >= max_connections && self.pool.num_idle() == 0;
            match classify(&error) {
                ErrorClass::Overloaded if !all_in_use => (ErrorClass::Unavailable, error),
                class => (class, error),
            }
        })
    }

    /// Creates a pool at the same address for transactions that a person steps through: its
    /// sessions may wait, and be idle in a transaction, for up to `timeout`. Must be called on the
    /// main runtime.
    pub fn with_session_timeout(&self, size: u32, timeout: Duration) -> Self {
        let timeout = format!("{}ms", timeout.as_millis());
        let timeouts = [
            ("statement_timeout", timeout.as_str()),
            ("lock_timeout", &timeout),
            ("idle_in_transaction_session_timeout", &timeout),
        ];
        let options = self.pool.connect_options().as_ref().clone().options(timeouts);
        pool_of(options, size)
    }

    /// Closes all connections, and waits for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// An open transaction. On drop, its connection is closed, which rolls it back.
#[derive(Debug)]
pub struct Transaction(Option<PoolConnection<Postgres>>);

impl Transaction {
    /// Begins a transaction. On an error, closes the connection; [`sqlx::Error::PoolTimedOut`] if
    /// Postgres does not respond before `until`.
    pub async fn begin(
        connection: PoolConnection<Postgres>,
        until: Instant,
    ) -> Result<Self, sqlx::Error> {
        let mut transaction = Self(Some(connection));
        let begun = timeout_at(until, transaction.send("begin")).await;
        begun.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(|()| transaction)
    }

    /// Commits. After an error the outcome may be unknown.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("commit").await.map(drop)
    }

    /// Rolls back, and returns the connection. On an error, closing the connection rolls back.
    pub async fn rollback(self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.end("rollback").await
    }

    async fn end(
        mut self,
        statement: &'static str,
    ) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.send(statement).await?;
        self.0.take().ok_or(sqlx::Error::WorkerCrashed)
    }

    async fn send(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(statement).execute(&mut **self).await.map(drop)
    }
}

impl Deref for Transaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.0 {
            Some(connection) => connection,
            None => unreachable!("a transaction has its connection until it ends"),
        }
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Some(connection) => connection,
            None => unreachable!("a transaction has its connection until it ends"),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

/// Must be called on the main runtime.
impl From<PgPool> for Pool {
    fn from(pool: PgPool) -> Self {
        Self { pool, runtime: Handle::current() }
    }
}

/// Creates a pool of at most `size` connections, or fails with [`Error::Address`]. Does not connect
/// yet. Must be called on the main runtime.
pub fn pool(url: &str, size: u32) -> Result<Pool, Error> {
    let options = options(url)?.application_name("holdfast").options(SESSION_SETTINGS);
    Ok(pool_of(options, size))
}

/// Parses the address. Slow statements are no warnings: the lab pauses processes within one, and
/// statements have a timeout.
fn options(url: &str) -> Result<PgConnectOptions, Error> {
    let options = PgConnectOptions::from_str(url).map_err(Error::Address)?;
    Ok(options.log_slow_statements(LevelFilter::Debug, SLOW_STATEMENT))
}

fn pool_of(options: PgConnectOptions, size: u32) -> Pool {
    let pool = PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // `Pool` tests a connection with the first statement on it.
        .test_before_acquire(false)
        .connect_lazy_with(options);
    pool.into()
}

/// Connects once, because a pool reports only a timeout as the cause of a failure.
pub async fn check_reachable(url: &str) -> Result<(), Error> {
    let options = options(url)?;
    let connect = sqlx::PgConnection::connect_with(&options);
    let connection = tokio::time::timeout(REACH_TIMEOUT, connect).await;
    let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    connection.map_err(Error::Unreachable)?.close().await?;
    Ok(())
}

/// Rejects a server that may lose commits or lacks the schema: [`Error::Unsafe`],
/// [`Error::Schema`], [`Error::Superseded`], [`Error::Changed`] or [`Error::Unreachable`].
pub async fn check_server(pool: &Pool) -> Result<(), Error> {
    let mut connection = pool.acquire().await.map_err(|(_, error)| Error::Unreachable(error))?;
    let settings: Vec<(String, String)> = sqlx::query_as(
        "select name, setting from pg_settings where name in ('synchronous_commit', 'fsync')",
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(Error::Unreachable)?;
    for (name, value) in settings {
        // A test server may turn off fsync; synchronous_commit = off loses orders by design.
        if value == "off" && name == "synchronous_commit" {
            return Err(Error::Unsafe { name, value });
        }
        if value == "off" {
            tracing::warn!("Postgres runs with fsync = off: a power cut may lose everything");
        }
    }
    migrate::check_applied(&mut connection).await
}

/// The class of an error of Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A serialization failure or a deadlock; the whole transaction may be retried.
    Conflict,
    LockTimeout,
    /// All connections are in use, a statement took too long, or nothing can be written.
    Overloaded,
    Unavailable,
    Bug,
}

pub fn classify(error: &sqlx::Error) -> ErrorClass {
    match error {
        sqlx::Error::PoolTimedOut => ErrorClass::Overloaded,
        sqlx::Error::PoolClosed
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => ErrorClass::Unavailable,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("40001" | "40P01") => ErrorClass::Conflict,
            Some("55P03") => ErrorClass::LockTimeout,
            // Class 53: out of connections, disk or memory; 57014: timeout; 25006: now a standby.
            Some(code) if code.starts_with("53") || ["57014", "25006"].contains(&code) => {
                ErrorClass::Overloaded
            }
            // Class 08: connection; 57P: shutdown; 25P03: idle in a transaction for too long.
            Some(code) if code.starts_with("08") || code.starts_with("57P") || code == "25P03" => {
                ErrorClass::Unavailable
            }
            _ => ErrorClass::Bug,
        },
        _ => ErrorClass::Bug,
    }
}

/// Returns whether the error is a violation of `constraint`.
pub fn violates(error: &sqlx::Error, constraint: &str) -> bool {
    error.as_database_error().and_then(|error| error.constraint()) == Some(constraint)
}
