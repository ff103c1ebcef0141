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
    Autocommit(AutocommitConnection),
    Explicit(Transaction),
}

#[derive(Debug)]
pub(super) struct AutocommitConnection(Option<Connection>);

impl DatabaseSession {
    pub(super) fn autocommit(connection: Connection) -> Self {
        DatabaseSession::Autocommit(AutocommitConnection(Some(connection)))
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        match self {
            DatabaseSession::Autocommit(AutocommitConnection(Some(connection))) => connection,
            DatabaseSession::Autocommit(AutocommitConnection(None)) => {
                unreachable!("nothing is sent after it is given away")
            }
            DatabaseSession::Explicit(tx) => tx,
        }
    }

    /// Moves the session out, between two statements. Nothing can be sent on the rest.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, DatabaseSession::Autocommit(AutocommitConnection(None)))
    }

    /// Returns the connection of an autocommit session to the pool, between two statements. Nothing
    /// can be sent on the session until it is reopened.
    pub(super) fn return_to_pool(&mut self) {
        if let DatabaseSession::Autocommit(connection) = self {
            drop(connection.0.take());
        }
    }

    pub(super) async fn reopen(&mut self, pool: &Pool) -> Result<(), Error> {
        if let DatabaseSession::Autocommit(AutocommitConnection(connection @ None)) = self {
            *connection = Some(pool.acquire().await?);
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

impl Drop for AutocommitConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.discard();
        }
    }
}
