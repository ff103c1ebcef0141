//! Idempotency keys: what names one execution of a command.
//!
//! Guarantees, by Postgres alone: of all requests with one key (per user, method and path), on all
//! replicas and through all crashes, at most one is executed; the others get its response, to the
//! byte. The key record is inserted, with the response, by the statement that writes the changes.
//!
//! The response is kept for [`KEPT_HOURS`]. Of an order the key and the order's id are kept
//! forever; the key records of other commands are purged after that time.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{IdempotencyKey, UserId};

/// How long responses are kept.
pub const KEPT_HOURS: i64 = 24;

/// The path under which orders are placed, by page and by API alike.
pub const ORDERS_PATH: &str = "/api/orders";
/// The path under which money is put on an account.
pub const TOP_UPS_PATH: &str = "/api/me/top-ups";

/// The idempotency key of one command, with its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The record's id: the first 16 bytes of the SHA-256 of user, method, path and key.
    pub id: Uuid,
    pub user: UserId,
    pub method: &'static str,
    pub path: String,
    /// The client's key, or one of our own.
    pub key: IdempotencyKey,
    /// SHA-256 of the parsed request.
    pub fingerprint: [u8; 32],
    /// Whether the server made the key, because the client sent none. Such a key has no duplicate,
    /// and needs no lock in Redis.
    pub minted: bool,
}

/// Computes the id of a key's record, as the audit does in SQL.
pub(super) fn record_id(user: UserId, method: &str, path: &str, key: &IdempotencyKey) -> Uuid {
    let text = format!("{} {method} {path} {}", user.0, key.as_str());
    let digest: [u8; 32] = Sha256::digest(text).into();
    let [start @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = digest;
    Uuid::from_bytes(start)
}

impl IdempotencyRequest {
    /// A POST with the client's key, or with a fresh one when the client sent none.
    pub fn post(
        user: UserId,
        path: impl Into<String>,
        key: Option<IdempotencyKey>,
        fingerprint: [u8; 32],
    ) -> Self {
        Self::new(user, "POST", path.into(), key, fingerprint)
    }

    /// A request of any method, otherwise as [`Self::post`].
    pub fn new(
        user: UserId,
        method: &'static str,
        path: String,
        key: Option<IdempotencyKey>,
        fingerprint: [u8; 32],
    ) -> Self {
        let minted = key.is_none();
        let key = key.unwrap_or_else(IdempotencyKey::mint);
        let id = record_id(user, method, &path, &key);
        Self { id, user, method, path, key, fingerprint, minted }
    }

    /// A command of the shop itself, which no client asked for.
    pub fn internal(path: &str) -> Self {
        Self::post(UserId(Uuid::nil()), path, None, [0; 32])
    }

    /// The key in Redis after `holdfast:token:`. It contains the path, except for orders.
    pub(super) fn lock_name(&self) -> String {
        let name = format!("{{{}:{}}}", self.user.0, self.key.as_str());
        if self.path == ORDERS_PATH { name } else { format!("{name}:{}", self.path) }
    }

    pub(super) fn fingerprint_hex(&self) -> String {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
        self.fingerprint.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }
}
