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

mod drawing;
mod find;
mod manners;
pub mod name;
mod remove;
pub mod terminal;

use redis::RedisError;

pub use find::{Found, Progress, Search, Total, find, look_at};
pub use remove::{BATCH, Removal, With, remove};

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Big {
    /// A string with *more* bytes is big.
    pub string_bytes: u64,
    /// Any other key with *more* elements is big.
    pub elements: u64,
}

impl Default for Big {
    /// A rule of thumb of Redis operators: 10 KB, read as 10,240 bytes, and 5,000 elements. Beyond
    /// it a single response, or a single `DEL`, takes noticeable time.
    fn default() -> Self {
        Self { string_bytes: 10 * 1024, elements: 5_000 }
    }
}

impl Big {
    fn is(self, kind: &Kind, length: Option<u64>) -> bool {
        length.is_some_and(|length| length > self.most(kind))
    }

    fn most(self, kind: &Kind) -> u64 {
        if *kind == Kind::String { self.string_bytes } else { self.elements }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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
const TYPES: [(Kind, &str, &str); 6] = [
    (Kind::String, "string", "STRLEN"),
    (Kind::List, "list", "LLEN"),
    (Kind::Set, "set", "SCARD"),
    (Kind::SortedSet, "zset", "ZCARD"),
    (Kind::Hash, "hash", "HLEN"),
    (Kind::Stream, "stream", "XLEN"),
];

impl Kind {
    /// Parses the response of `TYPE`; returns `None` if there is no key.
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "none" => return None,
            word => match TYPES.iter().find(|(_, known, _)| *known == word) {
                Some((kind, ..)) => kind.clone(),
                None => Kind::Other(name::shown(word.as_bytes())),
            },
        })
    }

    /// Returns the name of the type in `TYPE`.
    pub fn word(&self) -> &str {
        match self {
            Kind::Other(word) => word,
            kind => TYPES.iter().find(|(known, ..)| known == kind).map_or("", |known| known.1),
        }
    }

    /// Returns the command that reads the length of a key of this type in constant time.
    fn length(&self) -> Option<&'static str> {
        TYPES.iter().find(|(known, ..)| known == self).map(|known| known.2)
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

/// A key, as of the time it was read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// Name of the key, which may be any bytes; in JSON as [`name::shown`] formats it.
    #[serde(rename = "key", serialize_with = "name::serialize")]
    pub name: Vec<u8>,
    #[serde(rename = "type")]
    pub kind: Kind,
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
    Changed(String),
    /// Only `UNLINK` is safe for a module's type.
    #[error(
        "{key} is of type {kind}, which can't be removed piece by piece, and this Redis refuses \
         UNLINK: {why}"
    )]
    Whole { key: String, kind: String, why: String },
}
