//! Idempotency keys: the identity of one execution of a command.
//!
//! Guarantees, by Postgres alone: of all requests with one key (per user, method and path), on all
//! replicas and through all crashes, at most one is executed; the others receive its response, byte
//! for byte. The statement that writes the changes also inserts the key record with the response.
//!
//! Responses are kept for [`RETENTION_HOURS`]. For an order, the key and the order's id are kept
//! forever; the key records of other commands are purged after that time.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{IdempotencyKey, OrderId, UserId};

pub const RETENTION_HOURS: i64 = 24;

pub const ORDERS_PATH: &str = "/api/orders";
pub const TOP_UPS_PATH: &str = "/api/me/top-ups";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The record's id: the first 16 bytes of the SHA-256 of user, method, path and key.
    pub id: Uuid,
    pub user: UserId,
    pub method: &'static str,
    pub path: String,
    pub key: IdempotencyKey,
    pub fingerprint: [u8; 32],
    /// True if the server generated the key because the client sent none. Such a key has no
    /// duplicate, and needs no lock in Redis.
    pub is_generated: bool,
    /// The id of the order that this request places; a request for another change has none. It
    /// tells the record that this request inserted from that of a duplicate.
    pub new_order: Option<OrderId>,
}

pub(super) fn record_id(user: UserId, method: &str, path: &str, key: &IdempotencyKey) -> Uuid {
    let text = format!("{} {method} {path} {}", user.0, key.as_str());
    let digest: [u8; 32] = Sha256::digest(text).into();
    let [start @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = digest;
    Uuid::from_bytes(start)
}

impl IdempotencyRequest {
    /// Creates the request of a POST, with the client's key or, without one, a generated key.
    /// `content` is the parsed request.
    pub fn post(
        user: UserId,
        path: impl Into<String>,
        key: Option<IdempotencyKey>,
        content: &str,
    ) -> Self {
        Self::new(user, "POST", path.into(), key, content)
    }

    /// Creates a request of any method; otherwise like [`Self::post`].
    pub fn new(
        user: UserId,
        method: &'static str,
        path: String,
        key: Option<IdempotencyKey>,
        content: &str,
    ) -> Self {
        let is_generated = key.is_none();
        let key = key.unwrap_or_else(IdempotencyKey::generate);
        let id = record_id(user, method, &path, &key);
        let fingerprint = Sha256::digest(content).into();
        Self { id, user, method, path, key, fingerprint, is_generated, new_order: None }
    }

    /// Returns the lock's name in Redis after `holdfast:token:`, with the path except for orders.
    pub(super) fn lock_name(&self) -> String {
        let name = format!("{{{}:{}}}", self.user.0, self.key.as_str());
        if self.path == ORDERS_PATH { name } else { format!("{name}:{}", self.path) }
    }

    pub(super) fn fingerprint_hex(&self) -> String {
        self.fingerprint.iter().flat_map(|byte| [byte >> 4, byte & 15].map(hex_digit)).collect()
    }
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or('0')
}
