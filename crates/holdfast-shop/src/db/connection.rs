//! A connection of the pool, and a transaction on one. Both return or close it on drop.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};
use tokio::time::timeout;

use super::pool_state::PoolState;

/// Timeout of the ping before a connection returns to the pool, which waits for the end of a
/// cancelled statement. After it the connection is closed; otherwise a silent server would keep
/// its place in the pool until TCP gives up.
const RETURN_TIMEOUT: Duration = Duration::from_millis(300);

/// A connection of the pool. On drop it returns to the pool if Postgres responds on it within
/// [`RETURN_TIMEOUT`].
#[derive(Debug)]
pub struct Connection {
    /// Present until the connection is dropped.
    live: Option<PoolConnection<Postgres>>,
    /// True in a transaction, or in the middle of a statement.
    closes_on_drop: bool,
    state: Arc<PoolState>,
}

impl Connection {
    pub(super) fn new(
        live: PoolConnection<Postgres>,
        closes_on_drop: bool,
        state: &Arc<PoolState>,
    ) -> Self {
        state.in_use.fetch_add(1, Ordering::Relaxed);
        Self { live: Some(live), closes_on_drop, state: state.clone() }
    }

    /// Sets whether a drop closes the connection, e.g. in the middle of a statement.
    pub fn close_on_drop(&mut self, closes: bool) {
        self.closes_on_drop = closes;
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
        self.state.in_use.fetch_sub(1, Ordering::Relaxed);
        let Some(mut live) = self.live.take() else { return };

        if self.closes_on_drop {
            // Closing rolls back. A rollback would first wait for the statement in progress.
            drop(live.detach());
        } else {
            // The drop of `sqlx` does the same, without a timeout.
            tokio::spawn(async move { timeout(RETURN_TIMEOUT, live.return_to_pool()).await });
        }
    }
}

/// An open transaction. On drop, its connection is closed, which rolls it back.
#[derive(Debug)]
pub struct Transaction(pub(super) Connection);

impl Transaction {
    /// Commits. After an error the outcome may be unknown.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("commit").await
    }

    /// Rolls back. On an error, closing the connection rolls back.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        self.end("rollback").await
    }

    async fn end(mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        // One round trip: a prepared statement would take two on a new connection.
        sqlx::raw_sql(statement).execute(&mut *self.0).await?;
        self.0.closes_on_drop = false;
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
