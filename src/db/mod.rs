//! Postgres: the pool, the migrations, and what its errors mean.
//!
//! Guarantees: every session has its timeouts, so that a process that is stopped in the middle of a
//! transaction blocks others for a bounded time; a commit that was acknowledged is on disk
//! ([`check_server`] refuses a server that says otherwise). It does not retry: a retry repeats a
//! whole transaction, and only its owner knows what that is.

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

/// A request gives up on the pool after this; `unavailable` must be told within 2 s.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Trying a connection takes less, where Postgres answers at all.
const ATTEMPT: Duration = Duration::from_millis(300);

/// A server that is there lets one in sooner.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// What counts as a slow statement, in the log for those who look for one.
const SLOW: Duration = Duration::from_secs(1);

/// What every session sets. A statement may take 4 s, and wait 3 s of them for a row;
/// a transaction in which nobody speaks is ended after 10 s, the time a lock lives.
///
/// The data is in memory, or on an SSD. At the default price of a random page (4) a young table is
/// read whole for every order, and the plan is kept when it has grown. Statements over arrays are
/// planned once: planned for each list of values, the write of one order costs four times as much.
const SESSION: [(&str, &str); 6] = [
    ("statement_timeout", "4s"),
    ("lock_timeout", "3s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("timezone", "UTC"),
    ("random_page_cost", "1.1"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// What can be wrong with Postgres before the first request.
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

/// A pool whose connections all live on one runtime, whoever asks for them.
///
/// A connection belongs to the runtime that opened it, and an HTTP worker's runtime ends with the
/// worker: what it had opened would break under whoever uses it by then.
#[derive(Debug, Clone)]
pub struct Pool {
    pool: PgPool,
    runtime: Handle,
}

impl Pool {
    /// A connection that works: it was asked. Time running out means *unavailable* where Postgres
    /// does not let us in or does not answer, and *overloaded* where all connections are at work.
    pub async fn acquire(&self) -> Result<PoolConnection<Postgres>, (Trouble, sqlx::Error)> {
        let ((), connection) = self.ask(|connection| connection.ping().boxed()).await?;
        Ok(connection)
    }

    /// A transaction on a connection of its own. That it begins is what shows that the connection
    /// works: asking beforehand would be one round trip more for whoever waits for its locks.
    pub async fn begin(&self) -> Result<Transaction, (Trouble, sqlx::Error)> {
        self.first_that_works(Transaction::begin).await
    }

    /// Runs a query that changes nothing; returns its result and its connection, which is thereby
    /// known to work: asking for that beforehand would be one round trip more.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>
        + Clone
        + Send
        + 'static,
    ) -> Result<(T, PoolConnection<Postgres>), (Trouble, sqlx::Error)> {
        self.first_that_works(move |mut connection, until| {
            let question = question.clone();
            async move {
                let answer = timeout_at(until, question(&mut connection)).await;
                match answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                    Ok(answer) => Ok((answer, connection)),
                    Err(error) => {
                        drop(connection.detach());
                        Err(error)
                    }
                }
            }
        })
        .await
    }

    /// Connections may have died while nobody needed them: what is wanted is tried with one after
    /// the other, and a new one at last.
    async fn first_that_works<T, F>(
        &self,
        try_it: impl Fn(PoolConnection<Postgres>, Instant) -> F + Send + 'static,
    ) -> Result<T, (Trouble, sqlx::Error)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, sqlx::Error>> + Send,
    {
        let pool = self.pool.clone();
        let most = pool.options().get_max_connections();
        let first = self.runtime.spawn(async move {
            let until = Instant::now() + ACQUIRE_TIMEOUT;
            let mut dead = 0;
            loop {
                let connection = timeout_at(until, pool.acquire()).await;
                let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
                // Whoever was served last is not to lose a good connection for want of an instant.
                match try_it(connection, until.max(Instant::now() + ATTEMPT)).await {
                    Err(error) if trouble(&error) == Trouble::Unavailable && dead < most => {
                        dead += 1;
                    }
                    done => return done,
                }
            }
        });
        first.await.unwrap_or(Err(sqlx::Error::WorkerCrashed)).map_err(|error| {
            let all_at_work = self.pool.size() >= most && self.pool.num_idle() == 0;
            match trouble(&error) {
                Trouble::Overloaded if !all_at_work => (Trouble::Unavailable, error),
                trouble => (trouble, error),
            }
        })
    }

    /// A pool at the same address for somebody who is slower than a machine: its sessions may wait
    /// for a row, and do nothing in a transaction, for so long. It does not connect yet. Must be
    /// called on the main runtime.
    pub fn patient(&self, size: u32, limit: Duration) -> Self {
        let limit = format!("{}ms", limit.as_millis());
        let patience = [
            ("statement_timeout", limit.as_str()),
            ("lock_timeout", &limit),
            ("idle_in_transaction_session_timeout", &limit),
        ];
        let options = self.pool.connect_options().as_ref().clone().options(patience);
        pool_of(options, size)
    }

    /// Closes all connections, and waits for those that are at work.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// A transaction that has begun. When dropped, its connection is closed and it is rolled back.
#[derive(Debug)]
pub struct Transaction(Option<PoolConnection<Postgres>>);

impl Transaction {
    /// Until then it has begun, or the connection is closed.
    ///
    /// # Errors
    /// Postgres's; [`sqlx::Error::PoolTimedOut`] when it says nothing until then.
    pub async fn begin(
        connection: PoolConnection<Postgres>,
        until: Instant,
    ) -> Result<Self, sqlx::Error> {
        let mut transaction = Self(Some(connection));
        let begun = timeout_at(until, transaction.say("begin")).await;
        begun.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(|()| transaction)
    }

    /// Commits. After an error it may have been committed or not.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("commit").await.map(drop)
    }

    /// Rolls back, and frees the connection. After an error it is rolled back with the connection.
    pub async fn rollback(self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.end("rollback").await
    }

    async fn end(mut self, how: &'static str) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.say(how).await?;
        self.0.take().ok_or(sqlx::Error::WorkerCrashed)
    }

    async fn say(&mut self, what: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(what).execute(&mut **self).await.map(drop)
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

/// A pool of at most `size` connections, or [`Error::Address`]. It does not connect yet. Must be
/// called on the main runtime.
pub fn pool(url: &str, size: u32) -> Result<Pool, Error> {
    let options = options(url)?.application_name("holdfast").options(SESSION);
    Ok(pool_of(options, size))
}

/// How to connect to that address. That a statement took a second is nothing to be warned of: the
/// lab stops processes in the middle of theirs, and a migration, or a disk that is busy, takes its
/// time. What is really too slow meets its timeout, and is told as an error.
fn options(url: &str) -> Result<PgConnectOptions, Error> {
    let options = PgConnectOptions::from_str(url).map_err(Error::Address)?;
    Ok(options.log_slow_statements(LevelFilter::Debug, SLOW))
}

fn pool_of(options: PgConnectOptions, size: u32) -> Pool {
    let pool = PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // `Pool` does it, or begins a transaction instead.
        .test_before_acquire(false)
        .connect_lazy_with(options);
    pool.into()
}

/// Connects once, for the reason when it can't: a pool only reports that it waited in vain.
pub async fn reach(url: &str) -> Result<(), Error> {
    let options = options(url)?;
    let connect = sqlx::PgConnection::connect_with(&options);
    let connection = tokio::time::timeout(REACH_TIMEOUT, connect).await;
    let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    connection.map_err(Error::Unreachable)?.close().await?;
    Ok(())
}

/// Refuses a server that would lose commits or lacks our tables: [`Error::Unsafe`],
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
        // fsync off is a test server's business; synchronous_commit off loses orders by design.
        if value == "off" && name == "synchronous_commit" {
            return Err(Error::Unsafe { name, value });
        }
        if value == "off" {
            tracing::warn!("Postgres runs with fsync = off: a power cut may lose everything");
        }
    }
    migrate::check_applied(&mut connection).await
}

/// What an error of Postgres means for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Two transactions got in each other's way; the whole transaction may be tried again.
    Conflict,
    LockTimeout,
    /// All connections are in use, a statement took too long, or nothing can be written.
    Overloaded,
    Unavailable,
    Bug,
}

pub fn trouble(error: &sqlx::Error) -> Trouble {
    match error {
        sqlx::Error::PoolTimedOut => Trouble::Overloaded,
        sqlx::Error::PoolClosed
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => Trouble::Unavailable,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("40001" | "40P01") => Trouble::Conflict,
            Some("55P03") => Trouble::LockTimeout,
            // Class 53: out of connections, disk or memory; 25006: it is a standby now.
            Some(code) if code.starts_with("53") || ["57014", "25006"].contains(&code) => {
                Trouble::Overloaded
            }
            // Class 08: connection; 57P: shutdown; 25P03: our session slept in its transaction.
            Some(code) if code.starts_with("08") || code.starts_with("57P") || code == "25P03" => {
                Trouble::Unavailable
            }
            _ => Trouble::Bug,
        },
        _ => Trouble::Bug,
    }
}

/// Whether the error is a violation of the constraint of that name.
pub fn violates(error: &sqlx::Error, constraint: &str) -> bool {
    error.as_database_error().and_then(|error| error.constraint()) == Some(constraint)
}
