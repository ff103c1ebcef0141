//! Postgres: the pool, the migrations, and the classification of errors.
//!
//! Guarantees: every session has timeouts, so that a process that is paused in a transaction blocks
//! others for a bounded time; an acknowledged commit is on disk ([`check_server`]). It does not
//! retry transactions: only their owner can repeat one as a whole.

mod connect_error;
mod connection;
mod error_class;
mod migrate;
mod pool;
mod pool_state;
mod replica_session;
mod session;
mod tls;

use std::str::FromStr;
use std::time::Duration;

use log::LevelFilter;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio::time::timeout;

use crate::tls::UnusableCertificate;

pub use connection::{Connection, Transaction};
pub use error_class::{ErrorClass, classify, violates};
pub use migrate::migrate;
pub use pool::Pool;
pub use replica_session::{RecordedFamily, ReplicaSession, forget_lock_family};
pub use tls::warn_of_plain_text;

const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Duration from which the log, at level debug, lists a statement as slow.
const SLOW_STATEMENT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("DATABASE_URL can't be read: {0}. It looks like postgres://user:password@host/name")]
    Address(sqlx::Error),
    #[error(
        "Postgres does not respond at {place}: {cause}. Is it running, and is DATABASE_URL correct?"
    )]
    Unreachable { place: String, cause: String },
    #[error("Postgres refuses: {cause}. {advice}")]
    Refused { cause: String, advice: &'static str },
    #[error(transparent)]
    Certificate(#[from] UnusableCertificate),
    #[error("can't connect to Postgres: {cause}. {advice}")]
    Tls { cause: String, advice: String },
    #[error(
        "Postgres runs with synchronous_commit = off: a commit it has acknowledged can be lost, \
         and an order with it. Set synchronous_commit = on"
    )]
    Unsafe,
    #[error(
        "the database {name} has the encoding {encoding}, and Holdfast requires UTF8: use one that was \
         created with `createdb --encoding=UTF8 --locale=C --template=template0 NAME`"
    )]
    Encoding { name: String, encoding: String },
    /// A pooler gives several connections the same session, one transaction each.
    #[error(
        "between Holdfast and Postgres is a pooler in transaction mode, such as PgBouncer with \
         pool_mode = transaction: timeouts and prepared statements, which belong to a session, \
         would be those of other clients. Set pool_mode = session for this database, or let \
         DATABASE_URL name Postgres itself"
    )]
    SharedSession,
    #[error("the schema is not up to date: {0}. Run `holdfast migrate`")]
    Schema(String),
    /// There is no release yet, so there is no path from one build's schema to another's.
    #[error(
        "this database has the schema of another build of Holdfast, which this one cannot upgrade: \
         use an empty database, or with `holdfast up` another folder: --data FOLDER"
    )]
    OtherBuild,
    #[error("the migration failed: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    #[error("Postgres: {0}")]
    Other(#[from] sqlx::Error),
}

/// Creates a pool of at most `size` connections. Does not connect yet.
pub fn pool(url: &str, size: u32) -> Result<Pool, Error> {
    let options = options(url)?.application_name("holdfast");
    Ok(Pool::new(options, size, None))
}

/// Parses the address. Slow statements are no warnings: the lab pauses processes within one, and
/// statements have a timeout.
fn options(url: &str) -> Result<PgConnectOptions, Error> {
    let options = PgConnectOptions::from_str(url).map_err(Error::Address)?;
    let options = tls::check_certificates(url, options)?;
    let options = session::without_startup_settings(options);
    Ok(options.log_slow_statements(LevelFilter::Debug, SLOW_STATEMENT))
}

/// Connects, which a pool cannot do without hiding the cause of a failure. Rejects a pooler that
/// shares sessions, and a database that cannot store every text.
async fn connect(url: &str, wait: Option<Duration>) -> Result<PgConnection, Error> {
    let options = options(url)?;
    let connected = timeout(REACH_TIMEOUT, PgConnection::connect_with(&options)).await;
    let connected = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let mut connection = connected.map_err(|error| connect_error::explain(error, &options))?;

    // First: behind such a pooler, the settings would be another client's.
    session::check_own(&mut connection, &options).await?;
    session::apply(&mut connection, wait).await?;

    let (name, encoding): (String, String) =
        sqlx::query_as("select current_database()::text, current_setting('server_encoding')")
            .fetch_one(&mut connection)
            .await?;
    if encoding == "UTF8" { Ok(connection) } else { Err(Error::Encoding { name, encoding }) }
}

/// Connects once, and reports why that fails.
pub async fn check_reachable(url: &str) -> Result<(), Error> {
    Ok(connect(url, None).await?.close().await?)
}

/// Rejects a server that may lose commits, lacks the schema or refuses the user.
pub async fn check_server(pool: &Pool) -> Result<(), Error> {
    let mut connection = acquire(pool).await?;
    let (commit, fsync): (String, String) =
        sqlx::query_as("select current_setting('synchronous_commit'), current_setting('fsync')")
            .fetch_one(&mut *connection)
            .await
            .map_err(|error| connect_error::explain(error, &pool.connect_options()))?;

    // synchronous_commit = off loses orders by design; a test server may turn off fsync.
    if commit == "off" {
        return Err(Error::Unsafe);
    }
    if fsync == "off" {
        tracing::warn!("Postgres runs with fsync = off: a power cut may lose everything");
    }

    check_schema(&mut connection, &["select", "insert"]).await
}

/// Rejects a database that can't be read: without the schema, or whose tables the user may not
/// read.
pub async fn check_readable(pool: &Pool) -> Result<(), Error> {
    check_schema(&mut *acquire(pool).await?, &["select"]).await
}

async fn acquire(pool: &Pool) -> Result<Connection, Error> {
    let acquired = pool.acquire().await;
    acquired.map_err(|(_, error)| connect_error::explain(error, &pool.connect_options()))
}

/// Rejects a database without the schema, and a user who lacks one of the rights on a table of
/// Holdfast: the schema may have those of others, with other owners.
async fn check_schema(connection: &mut PgConnection, rights: &[&str]) -> Result<(), Error> {
    migrate::check_applied(connection).await?;

    // At the start the error names the table; otherwise an order would fail for it later.
    let missing: Option<String> = sqlx::query_scalar(
        "select wanted || ' on ' || string_agg(relname, ', ' order by relname)
           from pg_class, unnest($1::text[]) wanted
          where relkind = 'r'
            and (relnamespace, relowner) = (select relnamespace, relowner from pg_class
                                             where oid = to_regclass('_sqlx_migrations'))
            and relname <> '_sqlx_migrations'
            and not has_table_privilege(pg_class.oid, wanted)
          group by wanted limit 1",
    )
    .bind(rights)
    .fetch_optional(connection)
    .await?;

    match missing {
        None => Ok(()),
        Some(missing) => Err(Error::Refused {
            cause: format!("permission denied: {missing}"),
            advice: connect_error::GRANT,
        }),
    }
}
