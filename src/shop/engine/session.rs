//! The connection of one attempt: with a transaction around read and write, or without.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};
use tokio::time::timeout;

use crate::db::Transaction;

/// How long a commit or a rollback may take.
pub(super) const COMMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection. Dropped in the middle of a statement it is closed: Postgres undoes what it was
/// doing, and no other command gets it.
#[derive(Debug)]
pub(super) enum Session {
    /// Each statement commits itself.
    Autocommit(Connection),
    /// One transaction.
    Explicit(Transaction),
}

/// A connection that is closed when it is dropped.
#[derive(Debug)]
pub(super) struct Connection(Option<PoolConnection<Postgres>>);

impl Session {
    pub(super) fn autocommit(connection: PoolConnection<Postgres>) -> Self {
        Session::Autocommit(Connection(Some(connection)))
    }

    /// Moves the session out, between two statements. Nothing can be sent on what stays.
    pub(super) fn hand_over(&mut self) -> Self {
        std::mem::replace(self, Session::Autocommit(Connection(None)))
    }

    /// Gives the connection of an autocommit session back, between two statements. Nothing more can
    /// be sent on it.
    pub(super) fn give_back(&mut self) {
        if let Session::Autocommit(connection) = self {
            drop(connection.0.take());
        }
    }

    /// Ends it without a commit; the connection can be used again.
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
