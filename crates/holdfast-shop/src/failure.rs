//! The outcomes of a command: it was executed, now or before ([`Execution`]); the shop rejects it
//! for a reason on which the caller can act ([`Rejection`]); a component failed ([`Error`]).
//! Contention is a rejection: nothing is broken when two customers want the same item.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use holdfast_lock::redis::Refusal;
use holdfast_lock::{Holder, LockKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::model::OrderStatus;
use super::{OrderId, Sku};
use crate::db::{self, ErrorClass};
use holdfast_base::messages::{Message, message};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

impl StoredResponse {
    pub fn json(status: u16, value: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(value).map_err(|error| Error::Bug(error.to_string()))?;
        Ok(Self { status, body })
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Bug(error.to_string()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub response: StoredResponse,
    /// True if it was executed before, with the same idempotency key.
    pub replayed: bool,
    /// Name of the replica that executed it, if another one did.
    pub executed_by: Option<Box<str>>,
}

impl Execution {
    pub(super) fn now(response: StoredResponse) -> Self {
        Self { response, replayed: false, executed_by: None }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
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

/// A field of a request, and what is wrong with it.
pub type InvalidField = (FieldName, Message);

#[derive(Debug, Clone)]
pub enum Rejection {
    Invalid(FieldName, Message),
    /// Only an admin may do it.
    AdminOnly,
    Forbidden(Message),
    NotFound(Message),
    Exists(Message),
    SoldOut {
        sku: Sku,
        requested: i64,
        available: i64,
    },
    /// The order would cost more than its customer expects.
    PriceChanged {
        expected_total_cents: i64,
        total_cents: i64,
    },
    LimitReached {
        sku: Sku,
        limit: i64,
        /// Units in the customer's pending and paid orders.
        already: i64,
        requested: i64,
    },
    TooManyUnpaid {
        max: u32,
        /// Time until the first of them is due.
        wait: Duration,
    },
    InsufficientFunds {
        needed_cents: i64,
        balance_cents: i64,
        in_lab: bool,
    },
    OrderState {
        status: OrderStatus,
        action: &'static str,
    },
    OrderExpired,
    KeyInFlight,
    KeyMismatch,
    /// The key was used more than a day ago, and the response is no longer stored.
    KeyUsed {
        order_id: Option<OrderId>,
    },
    LockBusy(Holder),
    LockTimeout {
        waited: Duration,
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
    pub(super) fn invalid(field: impl Into<FieldName>, why: Message) -> Self {
        Self::Invalid(field.into(), why)
    }

    /// Rejects the first of these fields, if there is one.
    pub(super) fn first_of(invalid: impl IntoIterator<Item = InvalidField>) -> Result<(), Self> {
        match invalid.into_iter().next() {
            Some((field, why)) => Err(Self::Invalid(field, why)),
            None => Ok(()),
        }
    }

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

/// The component that did not respond: a server, another replica, or a task of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Postgres,
    Redis,
    BatchTask,
    CommandTask,
    /// The replica with the item's lease.
    LeaseHolder,
}

impl Component {
    /// Returns the id of its name in the catalogue.
    pub fn id(self) -> &'static str {
        match self {
            Self::Postgres => "component-postgres",
            Self::Redis => "component-redis",
            Self::BatchTask => "component-batch-task",
            Self::CommandTask => "component-command-task",
            Self::LeaseHolder => "component-lease-holder",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Message::new(self.id()).english())
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("{what} is unavailable: {cause}")]
    Unavailable {
        what: Component,
        cause: String,
        /// True if the change may have been written.
        outcome_unknown: bool,
    },
    /// Redis responds, and refuses what a lock needs.
    #[error("Redis refuses: {cause}")]
    RedisRefuses { refusal: Refusal, cause: String },
    /// Postgres did not execute a statement, for a reason with a class of its own: nothing was
    /// written.
    #[error("Postgres: {0:?}: {1}")]
    Postgres(ErrorClass, String),
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// The command was given up before anything was written, e.g. because its deadline passed.
    #[error("given up: {0}")]
    GivenUp(&'static str),
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
    fn unavailable(what: Component, cause: impl ToString) -> Self {
        Error::Unavailable { what, cause: cause.to_string(), outcome_unknown: false }
    }

    /// Returns whether a component is unavailable, so that other commands would fail too.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(
            self,
            Error::Unavailable { .. }
                | Error::RedisRefuses { .. }
                | Error::Postgres(ErrorClass::CannotWrite | ErrorClass::Refused, _)
        )
    }

    /// Creates the error of a read, or of a write whose outcome the caller resolves.
    pub(crate) fn postgres_timeout() -> Self {
        Error::unavailable(Component::Postgres, "it did not respond in time")
    }

    /// Creates the error of a task that may have written something and ended without a result.
    pub(super) fn task_ended(what: Component) -> Self {
        let cause = "it ended without a result".to_owned();
        Error::Unavailable { what, cause, outcome_unknown: true }
    }

    pub(super) fn deadline_passed() -> Self {
        Error::GivenUp("its deadline passed")
    }
}

impl Sku {
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
pub async fn with_timeout<T>(
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
            ErrorClass::Unavailable => Error::unavailable(Component::Postgres, cause),
            ErrorClass::Bug => Error::Bug(cause),
            class => Error::Postgres(class, cause),
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
            Unavailable(error) => Error::unavailable(Component::Redis, error),
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
        let error = Error::from(full);
        assert!(matches!(error, Error::Overloaded(_)), "{error:?}");
    }
}
