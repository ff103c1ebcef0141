//! Finds and removes big keys in Redis without stalling its other clients.
//!
//! Redis executes one command at a time, so no command of this module takes time in proportion to a
//! key's size: the keyspace is scanned in steps, a key's size is queried and not counted, and keys
//! are removed in the background or in batches.
//!
//! Guarantees: a search changes nothing, and holds no more than the keys it lists. After each step
//! it pauses for as long as the step took (up to 200 ms), so it uses about half of one server's
//! time at most. A removal ends even if the key grows, and then reports what is left.
//!
//! Does not guarantee a snapshot: a key created during the search may be missing; a key that Redis
//! returns twice (as it may while a table is resized) is counted twice and listed once. Tests:
//! `tests/it/keys*.rs`.

pub mod command;
pub mod key_name;
mod remove;
mod search;
mod throttle;

use holdfast_lock::redis::Error as RedisError;

pub use remove::{KeyRemovalMethod, MAX_BATCH_SIZE, Removal, remove};
pub use search::{SearchOptions, SearchResult, find, inspect};

/// A string of more bytes is big. This and [`MAX_ELEMENTS`] are a rule of thumb of Redis operators:
/// beyond them a single response, or a single `DEL`, takes noticeable time.
pub const MAX_STRING_BYTES: u64 = 10 * 1024;
/// Any other key of more elements is big.
pub const MAX_ELEMENTS: u64 = 5_000;

/// A key, as of the time it was read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KeyEntry {
    /// Name of the key, which may be any bytes; in JSON as [`key_name::escape`] formats it.
    #[serde(rename = "key", serialize_with = "key_name::serialize")]
    pub name: Vec<u8>,
    /// The response of `TYPE`, e.g. `zset`; the types of modules are an open set.
    #[serde(rename = "type")]
    pub key_type: String,
    /// Estimate from a few elements, if the server reports it.
    pub memory_bytes: Option<u64>,
    /// Bytes of a string, elements of any other type; unknown for a module's type.
    pub length: Option<u64>,
    pub big: bool,
}

/// Returns the command that reads the length of a key of this type in constant time.
fn length_command(key_type: &str) -> Option<&'static str> {
    Some(match key_type {
        "string" => "STRLEN",
        "list" => "LLEN",
        "set" => "SCARD",
        "zset" => "ZCARD",
        "hash" => "HLEN",
        "stream" => "XLEN",
        _ => return None,
    })
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    #[error("{0} was replaced by a key of another type during its removal; the new key was kept")]
    TypeChanged(String),
    /// Only `UNLINK` is safe for a module's type.
    #[error(
        "{key} is of type {key_type}, which can't be removed in batches, and this Redis refuses \
         UNLINK"
    )]
    NotRemovableInBatches { key: String, key_type: String },
}
