//! Connects to Postgres as configured, and says why that fails.

use std::env;
use std::str::FromStr;
use std::time::Duration;

use log::LevelFilter;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio::time::timeout;

use super::error::Error;
use super::pool::Pool;
use super::{address, connect_error, session, tls};

const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Duration from which the log, at level debug, lists a statement as slow.
const SLOW_STATEMENT: Duration = Duration::from_secs(1);

/// Creates a pool of at most `size` connections. Does not connect yet.
pub fn pool(url: &str, size: u32) -> Result<Pool, Error> {
    let options = options(url)?.application_name("holdfast");
    Ok(Pool::new(options, size, None))
}

/// Parses the address. Slow statements are no warnings: the lab pauses processes within one, and
/// statements have a timeout.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, Error> {
    address::check_text(url)?;
    let parsed = PgConnectOptions::from_str(&address::without_answered_parameters(url));
    let options = parsed.map_err(Error::Address)?;
    address::check_options(url, &options, |name| env::var(name).ok())?;
    let options = tls::check_certificates(url, options)?;
    // What `sqlx` sends with a connection and PgBouncer rejects: Holdfast reads no floats as text.
    let options = options.extra_float_digits(None);
    Ok(options.log_slow_statements(LevelFilter::Debug, SLOW_STATEMENT))
}

/// Connects, which a pool cannot do without hiding the cause of a failure. Rejects a pooler that
/// shares sessions, and a database that cannot store every text.
pub async fn connect(url: &str, wait: Option<Duration>) -> Result<PgConnection, Error> {
    let mut connection = connect_to_any(url, wait).await?;

    let (name, encoding): (String, String) =
        sqlx::query_as("select current_database()::text, current_setting('server_encoding')")
            .fetch_one(&mut connection)
            .await?;
    if encoding == "UTF8" { Ok(connection) } else { Err(Error::Encoding { name, encoding }) }
}

/// As [`connect`], to a database in which nothing is to be stored.
pub async fn connect_to_any(url: &str, wait: Option<Duration>) -> Result<PgConnection, Error> {
    let options = options(url)?;
    let connected = timeout(REACH_TIMEOUT, PgConnection::connect_with(&options)).await;
    let connected = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let mut connection = connected.map_err(|error| connect_error::explain(error, &options))?;

    // First: behind such a pooler, the settings would be another client's.
    session::check_own(&mut connection, &options).await?;
    session::apply(&mut connection, wait).await?;
    Ok(connection)
}

/// Connects once, and reports why that fails.
pub async fn check_reachable(url: &str) -> Result<(), Error> {
    Ok(connect(url, None).await?.close().await?)
}
