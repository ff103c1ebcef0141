//! What can come of asking the shop for something.
//!
//! Three kinds, told apart by type: it is done ([`Outcome::Done`], [`Outcome::Replayed`]); the shop
//! says no, for a reason the caller can act on ([`Refusal`]); something is broken ([`Error`]).
//! Contention is a refusal, not an error: nothing is wrong when two people want the same thing.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{OrderId, Sku};
use crate::db::{self, Trouble};
use crate::lock::{self, Holder, LockKey};

/// An answer as it is given, stored, and given again: to the byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status number. The number belongs to the stored answer; HTTP itself does not
    /// appear here.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

impl Answer {
    /// That value as JSON.
    ///
    /// # Errors
    /// [`Error::Bug`] when it can't be written as JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(value).map_err(|error| Error::Bug(error.to_string()))?;
        Ok(Self { status, body })
    }

    /// The status as its column has it.
    pub(super) fn status_column(&self) -> i16 {
        i16::try_from(self.status).unwrap_or(200)
    }

    /// The value back.
    ///
    /// # Errors
    /// [`Error::Bug`] when it is not a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Bug(error.to_string()))
    }
}

/// What came of a request.
#[derive(Debug)]
pub enum Outcome {
    /// It was done now.
    Done(Answer),
    /// It had been done before; this is what was answered then.
    Replayed(Answer),
    /// It was not done, and nothing changed.
    Refused(Refusal),
}

/// The name of a field: `delta`, or `lines[2].quantity`.
pub type Field = Cow<'static, str>;

/// Why the shop says no.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// What was asked for makes no sense; the field and why.
    Invalid(Field, String),
    /// The caller may not.
    Forbidden(String),
    /// There is no such thing, or it is somebody else's.
    NotFound(String),
    /// The name is taken.
    Exists(String),
    /// Not enough on the shelf.
    SoldOut {
        /// The first item that falls short.
        sku: Sku,
        /// How many were asked for.
        requested: i64,
        /// How many there were when it was judged.
        available: i64,
    },
    /// There are enough, and not for this customer: they may have no more of it.
    LimitReached {
        /// The first item of which it would be too many.
        sku: Sku,
        /// How many one customer may have.
        limit: i64,
        /// How many they have, in orders that are pending or paid.
        already: i64,
        /// How many more were asked for.
        requested: i64,
    },
    /// Not enough on the account.
    InsufficientFunds {
        /// What was to be paid.
        needed_cents: i64,
        /// What was there when it was judged.
        balance_cents: i64,
    },
    /// The order is not in a state in which that can be done.
    OrderState {
        /// The state it is in.
        status: String,
        /// What was tried.
        action: &'static str,
    },
    /// The order was not paid in time.
    OrderExpired,
    /// The same request is being worked on.
    KeyInFlight,
    /// The key was used for another request.
    KeyMismatch,
    /// The key was used more than a day ago; the answer is not kept so long.
    KeyUsed {
        /// The order it made, where it made one.
        order_id: Option<OrderId>,
    },
    /// Somebody else holds the lock, and the caller did not want to wait.
    LockBusy(Holder),
    /// Somebody else held the lock for as long as the caller could wait.
    LockTimeout {
        /// How long was waited.
        waited: Duration,
        /// Who held it at the end.
        holder: Holder,
    },
}

/// What is broken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Postgres or Redis is away.
    #[error("{what} is away: {cause}")]
    Unavailable {
        /// Which of the two.
        what: &'static str,
        /// What it said.
        cause: String,
        /// Whether the change may have been made all the same.
        outcome_unknown: bool,
    },
    /// More is asked of the shop than it can do now.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// A row stayed locked by another transaction.
    #[error("a row stayed locked: {0}")]
    RowLocked(String),
    /// Two transactions got in each other's way; tried again before anybody sees it.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Rows know higher fences than the locks that were held: what they are of, and how high.
    /// Healed or turned into [`Error::LockLost`] before anybody sees it.
    #[error("stale: {0:?}")]
    Stale(Vec<(LockKey, i64)>),
    /// The lock was lost before the write, and the write was refused.
    #[error("the lock on {0} was lost on the way")]
    LockLost(LockKey),
    /// A mistake in this program.
    #[error("bug: {0}")]
    Bug(String),
}

impl Error {
    /// Postgres did not answer a look in time. Nothing was to be changed.
    pub(super) fn silence() -> Self {
        Error::Unavailable {
            what: "Postgres",
            cause: "it did not answer in time".to_owned(),
            outcome_unknown: false,
        }
    }

    /// The requests' own time ended before the commit was sent.
    pub(super) fn time_is_up() -> Self {
        Error::Overloaded("the request's time is up".to_owned())
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
