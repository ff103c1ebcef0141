//! How a command can end.
//!
//! Three ways, told apart by type: it was executed, now or before ([`Executed`]); the shop rejects
//! it for a reason the caller can act on ([`Rejection`]); something is broken ([`Error`]).
//! Contention is a rejection, not an error: nothing is wrong when two people want the same thing.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{OrderId, Sku};
use crate::db::{self, Trouble};
use crate::lock::{self, Holder, LockKey};

/// An HTTP status and body, as they are sent, stored, and replayed: to the byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status code. It belongs to the stored response; HTTP itself does not appear here.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

impl StoredResponse {
    /// Serializes a value; [`Error::Bug`] if that fails.
    pub fn json(status: u16, value: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(value).map_err(|error| Error::Bug(error.to_string()))?;
        Ok(Self { status, body })
    }

    /// Parses the value; [`Error::Bug`] when it is not a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Bug(error.to_string()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    pub response: StoredResponse,
    /// Whether it was executed before, with the same idempotency key.
    pub replayed: bool,
}

impl Executed {
    pub(super) fn now(response: StoredResponse) -> Self {
        Self { response, replayed: false }
    }

    pub(super) fn before(response: StoredResponse) -> Self {
        Self { response, replayed: true }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The shop says no; nothing changed.
    #[error("rejected: {0:?}")]
    Rejected(Rejection),
    /// Something is broken; nothing changed, unless the error says that the outcome is unknown.
    #[error(transparent)]
    Error(#[from] Error),
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Failure::Rejected(rejection)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Failure::Error(error.into())
    }
}

impl From<(Trouble, sqlx::Error)> for Failure {
    fn from(error: (Trouble, sqlx::Error)) -> Self {
        Failure::Error(error.into())
    }
}

/// The name of a field: `delta`, or `lines[2].quantity`.
pub type Field = Cow<'static, str>;

#[derive(Debug, Clone)]
pub enum Rejection {
    /// What was asked for makes no sense; the field and why.
    Invalid(Field, String),
    Forbidden(String),
    /// There is no such thing, or it is somebody else's.
    NotFound(String),
    /// The name is taken.
    Exists(String),
    SoldOut {
        /// The first item that falls short.
        sku: Sku,
        requested: i64,
        /// How many there were when it was judged.
        available: i64,
    },
    LimitReached {
        /// The first item of which it would be too many.
        sku: Sku,
        limit: i64,
        /// How many they have, in orders that are pending or paid.
        already: i64,
        /// How many more were asked for.
        requested: i64,
    },
    InsufficientFunds {
        needed_cents: i64,
        /// What was there when it was judged.
        balance_cents: i64,
    },
    /// The order is not in a state in which that can be done.
    OrderState {
        status: String,
        action: &'static str,
    },
    OrderExpired,
    /// The same request is being worked on.
    KeyInFlight,
    /// The key was used for another request.
    KeyMismatch,
    /// The key was used more than a day ago; the response is not kept longer.
    KeyUsed {
        /// The order it made, where it made one.
        order_id: Option<OrderId>,
    },
    /// The lock is held, and the caller did not want to wait.
    LockBusy(Holder),
    /// The lock was held for as long as the caller could wait.
    LockTimeout {
        waited: Duration,
        /// The holder at the end.
        holder: Holder,
    },
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Postgres or Redis is away.
    #[error("{what} is away: {cause}")]
    Unavailable {
        /// Which of the two.
        what: &'static str,
        cause: String,
        /// Whether the change may have been made all the same.
        outcome_unknown: bool,
    },
    /// More is asked of the shop than it can do now.
    #[error("overloaded: {0}")]
    Overloaded(String),
    #[error("a row stayed locked: {0}")]
    RowLocked(String),
    /// Another change came between read and write, or Postgres ended one of two transactions. The
    /// engine reads again before a caller sees it.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The lock was lost before the write, and the write was refused.
    #[error("the lock on {0} was lost on the way")]
    LockLost(LockKey),
    #[error("bug: {0}")]
    Bug(String),
}

impl Error {
    /// Postgres did not respond in time.
    pub(super) fn silent_postgres() -> Self {
        Error::Unavailable {
            what: "Postgres",
            cause: "it did not answer in time".to_owned(),
            outcome_unknown: false,
        }
    }

    /// A task that may have written something ended without a result.
    pub(super) fn task_ended(what: &'static str) -> Self {
        let cause = "it ended without a result".to_owned();
        Error::Unavailable { what, cause, outcome_unknown: true }
    }

    /// The request's deadline passed before anything was written.
    pub(super) fn deadline_passed() -> Self {
        Error::Overloaded("the request's deadline passed".to_owned())
    }

    fn of(trouble: Trouble, cause: String) -> Self {
        match trouble {
            Trouble::Conflict => Error::Conflict(cause),
            Trouble::LockTimeout => Error::RowLocked(cause),
            Trouble::Overloaded => Error::Overloaded(cause),
            Trouble::Unavailable => {
                Error::Unavailable { what: "Postgres", cause, outcome_unknown: false }
            }
            Trouble::Bug => Error::Bug(cause),
        }
    }
}

impl Sku {
    /// A sku as the database has it; [`Error::Bug`] when it is none.
    pub fn stored(sku: String) -> Result<Self, Error> {
        Self::try_from(sku).map_err(|error| Error::Bug(error.to_owned()))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error::of(db::trouble(&error), error.to_string())
    }
}

impl From<(Trouble, sqlx::Error)> for Error {
    fn from((trouble, error): (Trouble, sqlx::Error)) -> Self {
        Error::of(trouble, error.to_string())
    }
}

impl From<lock::Error> for Failure {
    fn from(error: lock::Error) -> Self {
        Failure::Error(error.into())
    }
}

impl From<lock::Error> for Error {
    fn from(error: lock::Error) -> Self {
        match error {
            lock::Error::Unavailable(error) => Error::Unavailable {
                what: "Redis",
                cause: error.to_string(),
                outcome_unknown: false,
            },
            lock::Error::Full => Error::Overloaded(error.to_string()),
            lock::Error::BlankKey | lock::Error::NoQuorum | lock::Error::Lost => {
                Error::Bug(error.to_string())
            }
        }
    }
}
