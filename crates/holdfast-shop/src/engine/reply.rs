//! Where the result of a command goes: to its caller in this process, or as an [`Answer`] to the
//! replica that sent the command.

use std::sync::Arc;

use holdfast_lock::LockKey;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::OrderId;
use crate::command::SingleOrder;
use crate::engine::batch::entry::EntryResult;
use crate::failure::{Component, Error, Execution, Failure, Rejection, StoredResponse};

/// The process that waits for answers, and the key of its queue.
pub type Address = (Arc<str>, LockKey);

/// An answer that is to be sent: where, and the number of its command.
pub type AddressedAnswer = (Address, u64, Answer);

/// The way of a result: to the caller in this process, or to the replica that sent the command.
#[derive(Debug)]
pub enum ReplyRoute {
    Caller(oneshot::Sender<EntryResult>),
    Replica { to: Address, number: u64 },
}

impl ReplyRoute {
    /// Sends the result to a caller. Returns it if it is for another replica: several of them
    /// share a message.
    #[must_use]
    pub fn send(self, result: EntryResult) -> Option<AddressedAnswer> {
        match self {
            ReplyRoute::Caller(caller) => {
                let _ = caller.send(result);
                None
            }
            ReplyRoute::Replica { to, number } => Some((to, number, Answer::of(result))),
        }
    }

    /// Returns whether the result is not awaited any more.
    pub fn is_closed(&self) -> bool {
        match self {
            ReplyRoute::Caller(caller) => caller.is_closed(),
            // The command may be all that its sender waits for.
            ReplyRoute::Replica { .. } => false,
        }
    }

    /// Addresses an answer to a command of another replica.
    pub fn addressed(self, answer: Answer) -> Option<AddressedAnswer> {
        match self {
            ReplyRoute::Caller(_) => None,
            ReplyRoute::Replica { to, number } => Some((to, number, answer)),
        }
    }

    pub fn is_to_replica(&self) -> bool {
        matches!(self, ReplyRoute::Replica { .. })
    }
}

/// The result of a forwarded command. Nothing was or will be written for it, except by
/// [`Answer::Executed`], and by [`Answer::Unavailable`] if it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Executed {
        status: u16,
        body: String,
        replayed: bool,
    },
    SoldOut {
        available: i64,
    },
    PriceChanged {
        total_cents: i64,
    },
    LimitReached {
        limit: i64,
        already: i64,
    },
    KeyInFlight,
    KeyMismatch,
    KeyUsed {
        order: Option<Uuid>,
    },
    /// Postgres is unavailable, or Redis.
    Unavailable {
        is_postgres: bool,
        cause: String,
        outcome_unknown: bool,
    },
    Overloaded,
    /// Not begun, because the lease has ended or is not that of a leader.
    LeaseEnded,
    /// It failed in another way: the sender executes it, and sees for itself.
    Failed,
}

impl Answer {
    pub fn of(result: EntryResult) -> Self {
        match result {
            Ok(Execution { response: StoredResponse { status, body }, replayed, .. }) => {
                match String::from_utf8(body) {
                    Ok(body) => Answer::Executed { status, body, replayed },
                    // The sender reads the record of its key.
                    Err(_) => Answer::Failed,
                }
            }
            Err(Failure::Rejected(rejection)) => Self::of_rejection(&rejection),
            Err(Failure::Error(Error::Unavailable { what, cause, outcome_unknown })) => {
                let is_postgres = what == Component::Postgres;
                Answer::Unavailable { is_postgres, cause, outcome_unknown }
            }
            Err(Failure::Error(Error::Overloaded(_))) => Answer::Overloaded,
            Err(Failure::Error(_)) => Answer::Failed,
        }
    }

    pub fn of_rejection(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::SoldOut { available, .. } => Answer::SoldOut { available: *available },
            Rejection::PriceChanged { total_cents, .. } => {
                Answer::PriceChanged { total_cents: *total_cents }
            }
            Rejection::LimitReached { limit, already, .. } => {
                Answer::LimitReached { limit: *limit, already: *already }
            }
            Rejection::KeyInFlight => Answer::KeyInFlight,
            Rejection::KeyMismatch => Answer::KeyMismatch,
            Rejection::KeyUsed { order_id } => Answer::KeyUsed { order: order_id.map(|id| id.0) },
            _ => Answer::Failed,
        }
    }

    /// Returns the result of the command, executed by the replica of that name. `None` if the
    /// sender still has to execute it.
    pub fn result(self, order: SingleOrder<'_>, replica: &str) -> Option<EntryResult> {
        let (sku, requested) = (order.sku.clone(), order.quantity);
        Some(match self {
            Answer::Executed { status, body, replayed } => {
                let response = StoredResponse { status, body: body.into_bytes() };
                Ok(Execution { response, replayed, executed_by: Some(replica.into()) })
            }
            Answer::SoldOut { available } => {
                Err(Rejection::SoldOut { sku, requested, available }.into())
            }
            Answer::PriceChanged { total_cents } => {
                // Without an expectation the sender asked for something else: it executes it.
                let expected_total_cents = order.expected_total_cents?;
                Err(Rejection::PriceChanged { expected_total_cents, total_cents }.into())
            }
            Answer::LimitReached { limit, already } => {
                Err(Rejection::LimitReached { sku, limit, already, requested }.into())
            }
            Answer::KeyInFlight => Err(Rejection::KeyInFlight.into()),
            Answer::KeyMismatch => Err(Rejection::KeyMismatch.into()),
            Answer::KeyUsed { order } => {
                Err(Rejection::KeyUsed { order_id: order.map(OrderId) }.into())
            }
            Answer::Unavailable { is_postgres, cause, outcome_unknown } => {
                let what = if is_postgres { Component::Postgres } else { Component::Redis };
                Err(Error::Unavailable { what, cause, outcome_unknown }.into())
            }
            Answer::Overloaded => {
                Err(Error::Overloaded(format!("too many requests wait for {sku}")).into())
            }
            Answer::LeaseEnded | Answer::Failed => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Sku;

    #[test]
    fn forwarded_order_whose_outcome_is_unknown_is_not_reported_as_unwritten() {
        let sku = Sku::try_from("tea".to_owned()).unwrap();
        let order = SingleOrder {
            sku: &sku,
            quantity: 1,
            expected_total_cents: None,
            payment_window: Duration::ZERO,
        };
        for sent in [Component::Postgres, Component::Redis] {
            for is_unknown in [true, false] {
                let cause = "no response".to_owned();
                let error = Error::Unavailable { what: sent, cause, outcome_unknown: is_unknown };
                let text = serde_json::to_string(&Answer::of(Err(error.into()))).unwrap();
                let answer: Answer = serde_json::from_str(&text).unwrap();
                match answer.result(order, "8082") {
                    Some(Err(Failure::Error(Error::Unavailable {
                        what, outcome_unknown, ..
                    }))) => assert_eq!((what, outcome_unknown), (sent, is_unknown)),
                    other => panic!("{sent:?}: {other:?}"),
                }
            }
        }
    }
}
