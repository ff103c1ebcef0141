//! Finds and removes big keys in Redis without stalling its other clients.
//!
//! Redis executes one command at a time, so no command of this module takes time in proportion to a
//! key's size: the keyspace is scanned in steps, a key's size is queried and not counted, and keys
//! are removed in batches or in the background.
//!
//! Guarantees: a search changes nothing, and holds no more than the keys it lists, however many
//! keys there are. After each step it pauses for as long as the step took (up to 200 ms), so it
//! uses about half of one server's time at most; a removal, for which a user waits, pauses half as
//! long. A removal ends even if the key grows, and then reports what is left.
//!
//! Does not guarantee a snapshot: a key created during the search may be missing; a key that Redis
//! returns twice (as it may while a table is resized) is counted twice and listed once. `MEMORY
//! USAGE` is an estimate from a few elements. Tests: `tests/it/keys*.rs`.

pub mod command;
mod format;
pub mod key_name;
mod remove;
mod search;
mod throttle;

use holdfast_lock::redis::Error as RedisError;

pub use remove::{KeyRemovalMethod, MAX_BATCH_SIZE, Removal, remove};
pub use search::{SearchOptions, SearchResult, TypeTotal, find, inspect};

/// The size above which a key is big.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BigKeyThreshold {
    /// A string with *more* bytes is big.
    pub string_bytes: u64,
    /// Any other key with *more* elements is big.
    pub elements: u64,
}

impl Default for BigKeyThreshold {
    /// A rule of thumb of Redis operators: 10 KB, read as 10,240 bytes, and 5,000 elements. Beyond
    /// it a single response, or a single `DEL`, takes noticeable time.
    fn default() -> Self {
        Self { string_bytes: 10 * 1024, elements: 5_000 }
    }
}

impl BigKeyThreshold {
    fn is_exceeded(self, kind: &KeyType, length: Option<u64>) -> bool {
        let limit = if *kind == KeyType::String { self.string_bytes } else { self.elements };
        length.is_some_and(|length| length > limit)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyType {
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
    /// A module's type, by name. Its memory is known, its length is not.
    Other(String),
}

/// The types by their names in `TYPE`, and the commands that return their lengths.
const KEY_TYPES: [(KeyType, &str, &str); 6] = [
    (KeyType::String, "string", "STRLEN"),
    (KeyType::List, "list", "LLEN"),
    (KeyType::Set, "set", "SCARD"),
    (KeyType::SortedSet, "zset", "ZCARD"),
    (KeyType::Hash, "hash", "HLEN"),
    (KeyType::Stream, "stream", "XLEN"),
];

impl KeyType {
    /// Parses the response of `TYPE`; returns `None` if there is no key.
    fn parse(label: &str) -> Option<Self> {
        Some(match label {
            "none" => return None,
            label => match KEY_TYPES.iter().find(|(_, known, _)| *known == label) {
                Some((kind, ..)) => kind.clone(),
                None => KeyType::Other(key_name::escape(label.as_bytes())),
            },
        })
    }

    /// Returns the name of the type in `TYPE`.
    pub fn label(&self) -> &str {
        match self {
            KeyType::Other(label) => label,
            kind => KEY_TYPES.iter().find(|(known, ..)| known == kind).map_or("", |known| known.1),
        }
    }

    /// Returns the command that reads the length of a key of this type in constant time.
    fn length_command(&self) -> Option<&'static str> {
        KEY_TYPES.iter().find(|(known, ..)| known == self).map(|known| known.2)
    }
}

impl serde::Serialize for KeyType {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.label())
    }
}

/// A key, as of the time it was read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KeyEntry {
    /// Name of the key, which may be any bytes; in JSON as [`key_name::escape`] formats it.
    #[serde(rename = "key", serialize_with = "key_name::serialize")]
    pub name: Vec<u8>,
    #[serde(rename = "type")]
    pub kind: KeyType,
    /// Estimated memory, if the server reports it.
    pub memory_bytes: Option<u64>,
    /// Bytes of a string, elements of any other type; unknown for a module's type.
    pub length: Option<u64>,
    pub big: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    #[error("{0} has become something of another type meanwhile; what it is now was left alone")]
    TypeChanged(String),
    /// Only `UNLINK` is safe for a module's type.
    #[error(
        "{key} is of type {kind}, which can't be removed piece by piece, and this Redis refuses \
         UNLINK: {why}"
    )]
    NotRemovableInBatches { key: String, kind: String, why: String },
}
