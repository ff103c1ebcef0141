//! The messages between a replica that forwards commands and the holder of their lease.
//!
//! Each is sealed: a MAC under a key that the replicas of a shop share by their database, over the
//! addressee and the message. What another version wrote goes to another mailbox ([`MAILBOX`]).

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use crate::command::place_order::PlaceOrder;
use crate::command::{Command, SingleOrder};
use crate::engine::entry::EntryResult;
use crate::failure::{Component, Error, Execution, Failure, Rejection, StoredResponse};
use crate::model::RequestedLine;
use crate::{IdempotencyKey, OrderId, Sku, UserId};

/// The mailbox of this version of the messages. A change of a message changes the number: replicas
/// of two versions do not forward to each other.
pub(super) const MAILBOX: &str = "commands-3";

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Commands {
        /// The lease to which they are addressed, of `key`.
        lease: String,
        key: String,
        /// The id of the process that waits for the answers.
        from: String,
        orders: Vec<ForwardedOrder>,
    },
    Answers {
        key: String,
        /// Each with the number of its command.
        answers: Vec<(u64, Answer)>,
    },
}

/// An order of one line, which the sender has admitted.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::engine) struct ForwardedOrder {
    /// Numbers the commands of the sender.
    pub number: u64,
    /// The id of the order: the sender of a lost answer recognizes its own in the key's record.
    pub order: Uuid,
    pub user: Uuid,
    pub token: String,
    pub sku: String,
    pub quantity: i64,
    pub expected_total_cents: Option<i64>,
    pub payment_window_ms: u64,
    /// Time left until its deadline: the clocks of two machines are not compared.
    pub left_ms: u64,
    /// True if the sender has requested the lock of its idempotency key.
    pub key_lock_requested: bool,
    pub in_lab: bool,
    pub request_id: Uuid,
}

impl ForwardedOrder {
    /// Describes an order; its number and options are the caller's to set.
    pub fn of(command: &dyn Command) -> Option<Self> {
        let order = command.single_order()?;
        let idempotency = command.idempotency();
        Some(Self {
            number: 0,
            order: idempotency.new_order?.0,
            user: idempotency.user.0,
            token: idempotency.key.as_str().to_owned(),
            sku: order.sku.as_str().to_owned(),
            quantity: order.quantity,
            expected_total_cents: order.expected_total_cents,
            payment_window_ms: ms(order.payment_window),
            left_ms: 0,
            key_lock_requested: false,
            in_lab: false,
            request_id: Uuid::nil(),
        })
    }

    /// Returns the command: with the same idempotency key, fingerprint and order id.
    pub fn command(&self) -> Option<PlaceOrder> {
        let sku = Sku::try_from(self.sku.clone()).ok()?;
        let key = IdempotencyKey::try_from(self.token.clone()).ok()?;
        let line = RequestedLine { sku, quantity: self.quantity };
        let (user, window) = (UserId(self.user), self.payment_window());
        let command = PlaceOrder::new(user, key, &[line], self.expected_total_cents, window);
        Some(command.ok()?.with_order(OrderId(self.order)))
    }

    pub fn payment_window(&self) -> Duration {
        Duration::from_millis(self.payment_window_ms)
    }
}

pub(in crate::engine) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What became of a forwarded command. Nothing was or will be written for it, except by
/// [`Answer::Executed`], and by [`Answer::Unavailable`] if it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) enum Answer {
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

/// Seals messages, and opens those that were sealed under the same key.
#[derive(Clone)]
pub(super) struct Seal(Hmac<Sha256>);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

impl Seal {
    pub fn new(key: Uuid) -> Self {
        let mac = Hmac::new_from_slice(key.as_bytes());
        Self(mac.unwrap_or_else(|_| unreachable!("a key of HMAC has any length")))
    }

    /// Returns the sealed message to the process with that id.
    pub fn close(&self, to: &str, message: &Message) -> Result<String, Error> {
        let text = serde_json::to_string(message).map_err(|error| Error::Bug(error.to_string()))?;
        let mac = self.mac(to, &text).finalize().into_bytes();
        Ok(format!("{} {text}", BASE64_STANDARD_NO_PAD.encode(mac)))
    }

    /// Returns the message to the process with that id; `None` if it is not a replica's.
    pub fn open(&self, to: &str, sealed: &str) -> Option<Message> {
        let (mac, text) = sealed.split_once(' ')?;
        let mac = BASE64_STANDARD_NO_PAD.decode(mac).ok()?;
        self.mac(to, text).verify_slice(&mac).ok()?;
        serde_json::from_str(text).ok()
    }

    fn mac(&self, to: &str, text: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        // No id of a process contains a space.
        for part in [to, " ", text] {
            mac.update(part.as_bytes());
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Message {
        let body = r#"{"id":"é\"\n"}"#.to_owned();
        let executed = Answer::Executed { status: 201, body, replayed: false };
        Message::Answers { key: "{sku:tea}".to_owned(), answers: vec![(7, executed)] }
    }

    #[test]
    fn only_messages_of_the_shop_to_this_process_are_opened() {
        let seal = Seal::new(Uuid::from_u128(1));
        let sealed = seal.close("8081~a", &answers()).unwrap();
        let opened = seal.open("8081~a", &sealed).unwrap();
        assert_eq!(format!("{opened:?}"), format!("{:?}", answers()));
        assert!(seal.open("8082~b", &sealed).is_none(), "to another process");
        assert!(Seal::new(Uuid::from_u128(2)).open("8081~a", &sealed).is_none(), "another shop's");
        assert!(seal.open("8081~a", &sealed.replace("201", "200")).is_none(), "changed");
        for text in ["", " ", "no seal", &sealed[1..]] {
            assert!(seal.open("8081~a", text).is_none(), "{text}");
        }
    }

    #[test]
    fn forwarded_order_is_the_same_request() {
        let line = RequestedLine { sku: Sku::try_from("tea".to_owned()).unwrap(), quantity: 3 };
        let key = IdempotencyKey::generate();
        let window = Duration::from_secs(9);
        let order =
            PlaceOrder::new(UserId(Uuid::now_v7()), key, &[line], Some(750), window).unwrap();
        let forwarded = ForwardedOrder::of(&order).unwrap();
        let text = serde_json::to_string(&forwarded).unwrap();
        let again: ForwardedOrder = serde_json::from_str(&text).unwrap();
        let command = again.command().unwrap();
        assert_eq!(command.idempotency(), order.idempotency());
        assert_eq!(command.single_order(), order.single_order());
    }
}
