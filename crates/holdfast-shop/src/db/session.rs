//! The settings of a session, and the check that each connection has a session of its own.
//!
//! A statement sets them once the connection is made: PgBouncer rejects, or drops without a word,
//! settings that come with the connection. In transaction mode it gives each transaction another
//! session, so that timeouts and prepared statements are those of anybody: [`check_own`] finds out.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::time::timeout;

use super::error::Error;

/// Comparisons in [`check_own`]: among other clients, one may miss a shared session.
const COMPARISONS: u32 = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Those of [`STANDARD`] that a session which may wait longer replaces.
const WAITS: [&str; 3] =
    ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];

/// The settings of every session. A statement may take 4 s, of which it may wait 3 s for a row. A
/// transaction that is idle for 3 s, the TTL of a lease, is ended: a paused process blocks its rows
/// no longer than its items.
///
/// A statement whose client has closed the connection is cancelled. A connection to a client that
/// vanished is closed after 45 s of silence, or 10 s if it has not acknowledged a response. These
/// settings are the server's; `sqlx` has none for the client's side, so `Pool` tests connections.
///
/// The data is in memory, or on an SSD. At the default cost of a random page (4), Postgres plans to
/// read a small table as a whole for every order, and keeps that plan when the table has grown.
/// Statements over arrays are planned once: if planned for each list of values, the write of one
/// order costs four times as much.
const STANDARD: [(&str, &str); 12] = [
    ("statement_timeout", "4s"),
    ("lock_timeout", "3s"),
    ("idle_in_transaction_session_timeout", "3s"),
    ("client_connection_check_interval", "500ms"),
    ("tcp_keepalives_idle", "30s"),
    ("tcp_keepalives_interval", "5s"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "10s"),
    ("timezone", "UTC"),
    ("random_page_cost", "1.1"),
    ("plan_cache_mode", "force_generic_plan"),
    // Strategies that need another level set it in the transaction.
    ("default_transaction_isolation", "read committed"),
];

/// Sets them; with a `wait`, sessions may wait, and be idle in a transaction, for that long. Behind
/// a pooler the session may be one that another client has used: its prepared statements go,
/// because those of this client will have the same names.
pub(super) async fn apply(
    connection: &mut PgConnection,
    wait: Option<Duration>,
) -> sqlx::Result<()> {
    let mut settings: Vec<String> = STANDARD.iter().map(|(name, value)| set(name, value)).collect();
    if let Some(wait) = wait {
        let wait = format!("{}ms", wait.as_millis());
        // Behind the others: the last value of a name counts.
        settings.extend(WAITS.map(|name| set(name, &wait)));
    }

    // One statement, so that a new connection costs one round trip more, not twelve.
    let statement = format!("deallocate all; select {}", settings.join(", "));
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

fn set(name: &str, value: &str) -> String {
    format!("set_config('{name}', '{value}', false)")
}

/// Fails with [`Error::SharedSession`] if `connection` and another at the same time turn out to
/// have the same session, or `connection` one after another.
pub(super) async fn check_own(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<(), Error> {
    let second = timeout(CONNECT_TIMEOUT, PgConnection::connect_with(options)).await;
    // A pooler that has no second connection cannot have shared the session of the first.
    let Ok(Ok(mut other)) = second else { return Ok(()) };

    let mut shared = false;
    for _ in 0..COMPARISONS {
        let before = session_of(connection).await?;

        // A pooler accepts a connection, and lets its first statement wait for a session.
        let Ok(others) = timeout(CONNECT_TIMEOUT, session_of(&mut other)).await else {
            return Ok(());
        };

        let after = session_of(connection).await?;
        shared |= before == others? || before != after;
    }

    other.close().await?;
    if shared { Err(Error::SharedSession) } else { Ok(()) }
}

/// Returns the session that executes the connection's next statement. Not prepared, because
/// another client's statement may have the name.
async fn session_of(connection: &mut PgConnection) -> Result<i32, Error> {
    let row = sqlx::raw_sql("select pg_backend_pid()").fetch_one(connection).await?;
    Ok(row.try_get(0)?)
}
