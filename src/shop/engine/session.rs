//! The connection of one attempt, with or without a transaction around the read and the write.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};
use tokio::time::timeout;

use crate::db::Transaction;

/// Timeout of a commit or a rollback.
pub(super) const COMMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that is closed on drop, so that no other command gets it in the middle of a
/// statement. Postgres then rolls back an open transaction.
#[derive(Debug)]
pub(super) enum Session {
    /// Each statement commits itself.
    Autocommit(Connection),
    /// One transaction around the read and the write.
    Explicit(Transaction),
}

/// A connection that is closed on drop.
#[derive(Debug)]
pub(super) struct Connection(Option<PoolConnection<Postgres>>);

impl Session {
    pub(super) fn autocommit(connection: PoolConnection<Postgres>) -> Self {
        Session::Autocommit(Connection(Some(connection)))
    }

    /// Moves the session out, between two statements. Nothing can be sent on the rest.
    pub(super) fn hand_over(&mut self) -> Self {
        std::mem::replace(self, Session::Autocommit(Connection(None)))
    }

    /// Returns the connection of an autocommit session to the pool, between two statements. Nothing
    /// can be sent on the session afterwards.
    pub(super) fn give_back(&mut self) {
        if let Session::Autocommit(connection) = self {
            drop(connection.0.take());
        }
    }

    /// Ends the session without a commit, so that its connection can be reused.
    pub(super) async fn abandon(mut self) {
        self.give_back();
        if let Session::Explicit(tx) = self {
            let _ = timeout(COMMIT_TIMEOUT, tx.rollback()).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Session::Autocommit(Connection(Some(connection))) => connection,
            Session::Autocommit(Connection(None)) => {
                unreachable!("nothing is sent after it is given away")
            }
            Session::Explicit(tx) => tx,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Session::Autocommit(Connection(Some(connection))) => connection,
            Session::Autocommit(Connection(None)) => {
                unreachable!("nothing is sent after it is given away")
            }
            Session::Explicit(tx) => tx,
        }
    }
}
