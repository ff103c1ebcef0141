//! A connection of the pool, and a transaction on one. Both return or close it on drop.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::pool_state::ConnectionInUse;

/// Timeout of the ping before a connection returns to the pool, which waits for the end of a
/// cancelled statement. After it the connection is closed; otherwise a silent server would keep
/// its place in the pool until TCP gives up.
const RETURN_TIMEOUT: Duration = Duration::from_millis(300);

/// A connection of the pool. On drop it returns to the pool if Postgres responds on it within
/// [`RETURN_TIMEOUT`].
#[derive(Debug)]
pub struct Connection {
    /// Present until the connection is dropped or closed.
    live: Option<PoolConnection<Postgres>>,
    runtime: Handle,
    _in_use: ConnectionInUse,
}

impl Connection {
    pub(super) fn new(
        live: PoolConnection<Postgres>,
        runtime: &Handle,
        in_use: ConnectionInUse,
    ) -> Self {
        Self { live: Some(live), runtime: runtime.clone(), _in_use: in_use }
    }

    /// Closes the connection at once, e.g. in the middle of a statement. Postgres rolls back.
    pub fn discard(mut self) {
        drop(self.live.take().map(PoolConnection::detach));
    }
}

impl Deref for Connection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.live {
            Some(connection) => connection,
            None => unreachable!("a connection is live until it is dropped"),
        }
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.live {
            Some(connection) => connection,
            None => unreachable!("a connection is live until it is dropped"),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(mut live) = self.live.take() {
            // The drop of `sqlx` does the same without a timeout, whose timer is that runtime's.
            self.runtime.spawn(async move { timeout(RETURN_TIMEOUT, live.return_to_pool()).await });
        }
    }
}

/// An open transaction. On drop, its connection is closed, which rolls it back.
#[derive(Debug)]
pub struct Transaction(Option<Connection>);

/// The connection has an open transaction.
impl From<Connection> for Transaction {
    fn from(connection: Connection) -> Self {
        Self(Some(connection))
    }
}

impl Transaction {
    /// Commits. After an error the outcome may be unknown.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("commit").await.map(drop)
    }

    /// Rolls back, and returns the connection. On an error, closing the connection rolls back.
    pub async fn rollback(self) -> Result<Connection, sqlx::Error> {
        self.end("rollback").await
    }

    async fn end(mut self, statement: &'static str) -> Result<Connection, sqlx::Error> {
        sqlx::raw_sql(statement).execute(&mut *self).await?;
        self.0.take().ok_or(sqlx::Error::WorkerCrashed)
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
        if let Some(connection) = self.0.take() {
            connection.discard();
        }
    }
}
