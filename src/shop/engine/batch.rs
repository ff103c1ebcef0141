//! The parts of a batch: its commands, their results, and how an attempt at it can end.

use super::session::Session;
use crate::lock::LockKey;
use crate::shop::RequestOptions;
use crate::shop::command::Command;
use crate::shop::failure::{Error, Executed, Failure};
use crate::shop::store::guard::GuardedRow;

/// One command of a batch, and how it is to be executed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) command: &'a dyn Command,
    pub(super) options: &'a RequestOptions,
}

/// The result of one command.
pub(super) type EntryResult = Result<Executed, Failure>;

/// The state of the locks after a batch.
#[derive(Debug)]
pub(super) enum LockState {
    /// Held, as before.
    Held,
    /// Lost: another holder wrote.
    Lost,
    /// The write may still arrive, so they are left to expire.
    MayStillWrite,
    /// Held, but Postgres is unavailable: those who wait need not wait for that again.
    Unavailable(Error),
}

/// Why an attempt ended without results.
pub(super) enum Stop {
    /// Nothing was written.
    Failed(Error),
    /// Rows have higher fences than our locks: which, and how high.
    StaleFences(Vec<(LockKey, i64)>),
    /// The write was sent, and its result did not arrive.
    Unknown(Error, Box<Pending>),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

/// What is known when the write is sent.
pub(super) struct Pending {
    pub row: Option<GuardedRow>,
    /// Of each command the result, if the write is done.
    pub results: Vec<EntryResult>,
    /// The positions of those that are in the write.
    pub written: Vec<usize>,
}

pub(super) fn collect(results: Vec<Option<EntryResult>>) -> Result<Vec<EntryResult>, Stop> {
    let missing = || Stop::Failed(Error::Bug("a command of a batch got no result".to_owned()));
    results.into_iter().map(|result| result.ok_or_else(missing)).collect()
}

/// Ends the session of a statement that failed: rolled back, so that its connection can be used
/// again, or closed where Postgres is gone.
pub(super) async fn end_failed(session: Session, error: &Error) {
    match error {
        Error::Unavailable { .. } => drop(session),
        _ => session.abandon().await,
    }
}
