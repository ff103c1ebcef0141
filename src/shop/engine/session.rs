//! The connection of one attempt, with or without a transaction around the read and the write.

use std::time::Duration;

use sqlx::PgConnection;
use tokio::time::timeout;

use crate::db::{Connection, ErrorClass, Pool, Transaction};
use crate::shop::failure::Error;

const COMMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that is closed on drop, so that no other command gets it in the middle of a
/// statement. Postgres then rolls back an open transaction.
#[derive(Debug)]
pub(super) enum DatabaseSession {
    /// `None` between two statements.
    Autocommit(Option<Connection>),
    Explicit(Transaction),
}

impl DatabaseSession {
    pub(super) fn autocommit(mut connection: Connection) -> Self {
        connection.close_on_drop(true);
        DatabaseSession::Autocommit(Some(connection))
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        match self {
            DatabaseSession::Autocommit(Some(connection)) => connection,
            DatabaseSession::Autocommit(None) => {
                unreachable!("nothing is sent after it is given away")
            }
            DatabaseSession::Explicit(tx) => tx,
        }
    }

    /// Moves the session out, between two statements. Nothing can be sent on the rest.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, DatabaseSession::Autocommit(None))
    }

    /// Returns the connection of an autocommit session to the pool, between two statements. Nothing
    /// can be sent on the session until it is reopened.
    pub(super) fn return_to_pool(&mut self) {
        if let DatabaseSession::Autocommit(connection) = self
            && let Some(mut connection) = connection.take()
        {
            connection.close_on_drop(false);
        }
    }

    pub(super) async fn reopen(&mut self, pool: &Pool) -> Result<(), Error> {
        if let DatabaseSession::Autocommit(None) = self {
            *self = Self::autocommit(pool.acquire().await?);
        }
        Ok(())
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        let DatabaseSession::Explicit(tx) = self else { return Ok(()) };
        match timeout(COMMIT_TIMEOUT, tx.commit()).await {
            Ok(committed) => Ok(committed?),
            Err(_) => Err(Error::postgres_timeout()),
        }
    }

    pub(super) async fn end_failed(self, error: &Error) {
        let is_ended = matches!(error, Error::Postgres(ErrorClass::SessionEnded, _));
        if is_ended || error.is_outage() {
            drop(self);
        } else {
            self.end_without_commit().await;
        }
    }

    /// Ends the session without a commit, so that its connection can be reused.
    pub(super) async fn end_without_commit(mut self) {
        self.return_to_pool();
        if let DatabaseSession::Explicit(tx) = self {
            let _ = timeout(COMMIT_TIMEOUT, tx.rollback()).await;
        }
    }
}
