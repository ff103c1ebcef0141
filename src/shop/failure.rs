//! The outcomes of a command, as three types.
//!
//! It was executed, now or before ([`Execution`]); the shop rejects it for a reason on which the
//! caller can act ([`Rejection`]); a component failed ([`Error`]). Contention is a rejection, not
//! an error: nothing is broken when two customers want the same item.

use std::borrow::Cow;
use std::time::Duration;

use holdfast_lock::redis::Refusal;
use holdfast_lock::{Holder, LockKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::model::OrderStatus;
use super::{OrderId, Sku};
use crate::coalesce::{CoalesceError, MAX_WAITING};
use crate::db::{self, ErrorClass};
use crate::locks::LockError;
use crate::messages::{Message, message};

/// An HTTP status and body, sent, stored and replayed byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status code, as stored and sent; the domain uses nothing else of HTTP.
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

    /// Parses the body; [`Error::Bug`] if it is not a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Bug(error.to_string()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub response: StoredResponse,
    /// True if it was executed before, with the same idempotency key.
    pub replayed: bool,
}

impl Execution {
    pub(super) fn now(response: StoredResponse) -> Self {
        Self { response, replayed: false }
    }

    pub(super) fn before(response: StoredResponse) -> Self {
        Self { response, replayed: true }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The shop rejected the command; nothing changed.
    #[error("rejected: {0:?}")]
    Rejected(Rejection),
    /// A component failed; nothing changed, unless the error states an unknown outcome.
    #[error(transparent)]
    Error(Error),
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Failure::Rejected(rejection)
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Error(error.into())
    }
}

/// The name of a field, e.g. `delta` or `lines[2].quantity`.
pub type FieldName = Cow<'static, str>;

#[derive(Debug, Clone)]
pub enum Rejection {
    /// The request is invalid: the field and the reason.
    Invalid(FieldName, String),
    Forbidden(String),
    /// The object does not exist, or belongs to another user; the message says which object.
    NotFound(Message),
    /// The name is taken.
    Exists(String),
    SoldOut {
        /// The first item with insufficient stock.
        sku: Sku,
        requested: i64,
        /// The stock at the decision.
        available: i64,
    },
    LimitReached {
        /// The first item whose limit would be exceeded.
        sku: Sku,
        limit: i64,
        /// Units in the customer's pending and paid orders.
        already: i64,
        /// Units of the rejected order.
        requested: i64,
    },
    /// The user has too many unpaid orders.
    TooManyUnpaid {
        /// The limit.
        max: u32,
        /// Time until the first of them is due.
        wait: Duration,
    },
    InsufficientFunds {
        needed_cents: i64,
        /// The balance at the decision.
        balance_cents: i64,
        /// True for the lab account.
        in_lab: bool,
    },
    /// The order's status does not allow the action.
    OrderState {
        status: OrderStatus,
        action: &'static str,
    },
    OrderExpired,
    /// The same request is in flight.
    KeyInFlight,
    /// The key was used for another request.
    KeyMismatch,
    /// The key was used more than a day ago, and the response is no longer stored.
    KeyUsed {
        /// The order that was placed with it, if any.
        order_id: Option<OrderId>,
    },
    /// The lock is held, and the request does not wait.
    LockBusy(Holder),
    /// The lock was held until the timeout.
    LockTimeout {
        waited: Duration,
        /// The holder at the timeout.
        holder: Holder,
    },
    /// The requests on lab items hold all of the connections that they may hold.
    LabBusy,
    /// As many requests have a pause as may at a time, or as one user's may.
    TooManyPauses,
}

impl Failure {
    /// Returns whether it came before the key's record was read, which an earlier request may have
    /// inserted.
    pub(super) fn precedes_read(&self) -> bool {
        matches!(self, Failure::Rejected(Rejection::LabBusy))
    }
}

impl Rejection {
    pub(super) fn no_item(sku: &Sku) -> Self {
        Rejection::NotFound(message!("problem-missing-item", sku))
    }

    pub(super) fn no_account() -> Self {
        Rejection::NotFound(message!("problem-missing-account"))
    }

    /// An order that does not exist and one of another user look alike.
    pub(super) fn no_order(order: OrderId) -> Self {
        Rejection::NotFound(message!("problem-missing-order", order))
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Postgres or Redis is unavailable.
    #[error("{what} is unavailable: {cause}")]
    Unavailable {
        /// Name of the component.
        what: &'static str,
        cause: String,
        /// True if the change may have been written.
        outcome_unknown: bool,
    },
    /// Redis responds, and refuses what a lock needs.
    #[error("Redis refuses: {cause}")]
    RedisRefuses { refusal: Refusal, cause: String },
    /// Postgres is read-only, out of disk or memory, or gone before the write was sent: nothing was
    /// written.
    #[error("Postgres cannot write: {0}")]
    CannotWrite(String),
    /// Postgres refuses the shop's user, e.g. after its password or its rights were changed:
    /// nothing was written.
    #[error("Postgres refuses: {0}")]
    Refused(String),
    /// A queue is full.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// Every connection to Postgres is in use, here or at the server.
    #[error("no free connection to Postgres: {0}")]
    NoConnection(String),
    /// A statement took too long, or an operator cancelled it: Postgres rolled it back.
    #[error("Postgres cancelled a statement: {0}")]
    Cancelled(String),
    /// Postgres ended the session, or a migration made its statements invalid. Nothing was written,
    /// and another session works.
    #[error("the session with Postgres can't be used: {cause}")]
    SessionEnded { by_migration: bool, cause: String },
    /// The command was given up before anything was written, e.g. because its deadline passed.
    #[error("given up: {0}")]
    GivenUp(&'static str),
    #[error("a row stayed locked: {0}")]
    RowLocked(String),
    /// Another change was written between read and write, or Postgres aborted one of two
    /// transactions. The engine retries it.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Each of the strategy's attempts was a conflict: nothing was written.
    #[error("given up after {attempts} attempts: {cause}")]
    Conflicts { attempts: u32, cause: String },
    /// The lock was lost, and a later holder may have written: nothing is written.
    #[error("the lock on {0} was lost before the write")]
    LockLost(LockKey),
    #[error("bug: {0}")]
    Bug(String),
}

impl Error {
    /// Creates the error of a component that failed before anything was written.
    fn unavailable(what: &'static str, cause: impl ToString) -> Self {
        Error::Unavailable { what, cause: cause.to_string(), outcome_unknown: false }
    }

    /// Returns whether a component is unavailable, so that other commands would fail too.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(
            self,
            Error::Unavailable { .. }
                | Error::RedisRefuses { .. }
                | Error::CannotWrite(_)
                | Error::Refused(_)
        )
    }

    /// Creates the error of a read, or of a write whose outcome the caller resolves.
    pub(crate) fn postgres_timeout() -> Self {
        Error::unavailable("Postgres", "it did not respond in time")
    }

    /// Creates the error of a task that may have written something and ended without a result.
    pub(super) fn task_ended(what: &'static str) -> Self {
        let cause = "it ended without a result".to_owned();
        Error::Unavailable { what, cause, outcome_unknown: true }
    }

    /// Creates the error of a deadline that passed before anything was written.
    pub(super) fn deadline_passed() -> Self {
        Error::GivenUp("its deadline passed")
    }
}

impl Sku {
    /// Converts a sku from the database; [`Error::Bug`] if it is invalid.
    pub fn stored(sku: String) -> Result<Self, Error> {
        Self::try_from(sku).map_err(|error| Error::Bug(error.to_owned()))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error::from((db::classify(&error), error))
    }
}

/// Awaits a query; fails with [`Error::Unavailable`] if Postgres does not respond within `limit`.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    query: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(limit, query).await.unwrap_or_else(|_| Err(Error::postgres_timeout()))
}

impl From<(ErrorClass, sqlx::Error)> for Error {
    fn from((class, error): (ErrorClass, sqlx::Error)) -> Self {
        let cause = error.to_string();
        match class {
            ErrorClass::Conflict => Error::Conflict(cause),
            ErrorClass::LockTimeout => Error::RowLocked(cause),
            ErrorClass::NoConnection => Error::NoConnection(cause),
            ErrorClass::Cancelled => Error::Cancelled(cause),
            ErrorClass::CannotWrite => Error::CannotWrite(cause),
            ErrorClass::Refused => Error::Refused(cause),
            ErrorClass::SessionEnded => Error::SessionEnded { by_migration: false, cause },
            ErrorClass::StatementChanged => Error::SessionEnded { by_migration: true, cause },
            ErrorClass::Unavailable => Error::unavailable("Postgres", cause),
            ErrorClass::Bug => Error::Bug(cause),
        }
    }
}

impl From<CoalesceError> for Error {
    fn from(error: CoalesceError) -> Self {
        match error {
            CoalesceError::QueueIsFull => {
                Error::Overloaded(format!("{MAX_WAITING} lookups of the same kind wait"))
            }
            CoalesceError::TaskPanicked => Error::Bug("the task of a lookup panicked".to_owned()),
        }
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Lock(error) => error.into(),
            LockError::QueueFull(error) => Error::Overloaded(error.to_string()),
        }
    }
}

impl From<holdfast_lock::Error> for Error {
    fn from(error: holdfast_lock::Error) -> Self {
        use holdfast_lock::Error::{QueueFull, Unavailable};

        let cause = error.to_string();
        // The shop works again once an operator has corrected Redis or its address.
        if let Some(refusal) = error.refusal() {
            return Error::RedisRefuses { refusal, cause };
        }
        match error {
            Unavailable(error) => Error::unavailable("Redis", error),
            QueueFull(_) => Error::Overloaded(cause),
            _ => Error::Bug(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_lock_queue_is_overloaded() {
        let full = holdfast_lock::Error::QueueFull(LockKey::new("{sku:tea}").unwrap());
        let error = Error::from(LockError::from(full));
        assert!(matches!(error, Error::Overloaded(_)), "{error:?}");
    }
}
