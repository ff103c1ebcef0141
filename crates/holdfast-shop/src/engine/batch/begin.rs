//! How an attempt at a batch begins: with a read, or with what its leader knows of the row.

use std::time::Duration;

use tokio::time::sleep;
use tracing::debug_span;

use super::entries::{Batch, begin_step};
use super::entry::AttemptError;
use super::kept_row::PostgresClock;
use super::points::pass_point;
use super::session::DatabaseSession;
use crate::budget::BudgetPermit;
use crate::engine::lease::locks::{AcquiredLocks, LockState};
use crate::failure::{Error, Failure, Rejection};
use crate::probe::Point;
use crate::store::read::ReadSnapshot;

/// Time to wait for one of the lab's connections: as long as for a lock. It takes none of another.
const LAB_CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// An attempt that has begun.
pub struct BegunAttempt {
    pub session: DatabaseSession,
    pub snapshot: ReadSnapshot,
    pub clock: PostgresClock,
    /// True if nothing was read: the snapshot is what the leader knows of its own last write.
    pub is_unread: bool,
    pub _lab_permit: Option<BudgetPermit>,
}

pub type ReadResult = Result<BegunAttempt, AttemptError>;

/// Begins the batch of a leader with the read, while Redis sets the locks of its keys. The rest is
/// [`complete`](super::complete)'s.
pub async fn begin(batch: Batch<'_>, locks: &AcquiredLocks) -> ReadResult {
    pass_point(batch.positions(), Point::Held, locks, |_, _| None).await;
    read(batch).await
}

/// Begins with the row that the leader's last write left. The connection is opened for the write.
pub async fn begin_unread(batch: Batch<'_>, known: ReadSnapshot) -> ReadResult {
    let beginning = async {
        let _lab_permit = lab_permit(batch).await?;
        let clock = PostgresClock::read_now(known.state.now);
        let session = DatabaseSession::Autocommit(None);
        Ok(BegunAttempt { session, snapshot: known, clock, is_unread: true, _lab_permit })
    };
    batch.in_time(beginning).await?
}

/// Ends a batch whose commands were all taken out since it began.
pub async fn abandon(begun: ReadResult) -> LockState {
    match begun {
        Ok(begun) => {
            begun.session.end().await;
            LockState::Held
        }
        Err(AttemptError::Failed(Failure::Error(error))) if error.is_outage() => {
            LockState::HeldInOutage(error)
        }
        Err(_) => LockState::Held,
    }
}

/// Reads within the deadline, once the lab may use one more connection if the batch is the lab's.
pub async fn read(batch: Batch<'_>) -> ReadResult {
    let _step = begin_step(batch, |held| debug_span!(parent: held, "read"));
    let reading = async {
        let _lab_permit = lab_permit(batch).await?;
        let (session, snapshot) = DatabaseSession::read(batch).await?;
        let clock = PostgresClock::read_now(snapshot.state.now);
        Ok(BegunAttempt { session, snapshot, clock, is_unread: false, _lab_permit })
    };
    batch.in_time(reading).await?
}

async fn lab_permit(batch: Batch<'_>) -> Result<Option<BudgetPermit>, AttemptError> {
    if !batch.is_in_lab() {
        return Ok(None);
    }

    let shop = batch.shop;
    // The others of a batch wait for its first user's permit, as they would during its pause.
    let user = batch.entries.first().map(|entry| entry.command.idempotency().user.0);
    tokio::select! {
        Some(permit) = shop.lab_connections.acquire(user.unwrap_or_default()) => Ok(Some(permit)),
        () = shop.pool.silence() => Err(Error::postgres_timeout().into()),
        () = sleep(LAB_CONNECTION_TIMEOUT) => Err(Rejection::LabBusy.into()),
    }
}
