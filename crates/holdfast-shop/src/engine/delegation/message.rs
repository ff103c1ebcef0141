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

use crate::command::Command;
use crate::command::place_order::PlaceOrder;
use crate::engine::reply::Answer;
use crate::failure::Error;
use crate::model::RequestedLine;
use crate::{IdempotencyKey, OrderId, Sku, UserId};

/// The mailbox of this version of the messages. A change of a message changes the number: replicas
/// of two versions do not forward to each other.
pub(super) const MAILBOX: &str = "commands-3";

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DelegationMessage {
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
    pub fn close(&self, to: &str, message: &DelegationMessage) -> Result<String, Error> {
        let text = serde_json::to_string(message).map_err(|error| Error::Bug(error.to_string()))?;
        let mac = self.mac(to, &text).finalize().into_bytes();
        Ok(format!("{} {text}", BASE64_STANDARD_NO_PAD.encode(mac)))
    }

    /// Returns the message to the process with that id; `None` if it is not a replica's.
    pub fn open(&self, to: &str, sealed: &str) -> Option<DelegationMessage> {
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

    fn answers() -> DelegationMessage {
        let body = r#"{"id":"é\"\n"}"#.to_owned();
        let executed = Answer::Executed { status: 201, body, replayed: false };
        DelegationMessage::Answers { key: "{sku:tea}".to_owned(), answers: vec![(7, executed)] }
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
