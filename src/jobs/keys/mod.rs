//! Big keys in Redis: found, and removed, without stalling anybody.
//!
//! A command of Redis is carried out alone, and everybody waits for it. So nothing here is one
//! command that takes as long as a key is large: the keyspace is walked in steps, a key's size is
//! asked for and not counted, and what is removed is removed piece by piece, or in the background.
//!
//! Guarantees: looking changes nothing, and holds no more than it was asked to list, however many
//! keys there are. Between two steps of a search as much time is left to others as the step took,
//! so that at most half of one server's time goes into it; of a removal, for which somebody waits,
//! half as much. A removal ends, also when the key grows
//! meanwhile, and then says what is left.
//!
//! Does not guarantee a snapshot. A key that came while it was looked at may be missing, one that
//! Redis showed twice (it may, while its table grows or shrinks) is counted twice and listed once.
//! `MEMORY USAGE` is an estimate from a few elements.

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
    /// A string of *more* than so many bytes.
    pub string_bytes: u64,
    /// Anything else of *more* than so many elements.
    pub elements: u64,
}

impl Default for Big {
    /// The rule of thumb of those who run Redis for others: 10 KB, read as 10,240 bytes, and 5,000
    /// elements. Beyond it a single answer, or a single `DEL`, is long enough to be noticed.
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
    /// What a module brought along, by the name it gave. It can be weighed, but not measured.
    Other(String),
}

/// What `TYPE` calls each, and the command that says how long such a key is.
const TYPES: [(Kind, &str, &str); 6] = [
    (Kind::String, "string", "STRLEN"),
    (Kind::List, "list", "LLEN"),
    (Kind::Set, "set", "SCARD"),
    (Kind::SortedSet, "zset", "ZCARD"),
    (Kind::Hash, "hash", "HLEN"),
    (Kind::Stream, "stream", "XLEN"),
];

impl Kind {
    /// What `TYPE` says; `None` when there is no such key.
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "none" => return None,
            word => match TYPES.iter().find(|(_, known, _)| *known == word) {
                Some((kind, ..)) => kind.clone(),
                None => Kind::Other(name::shown(word.as_bytes())),
            },
        })
    }

    /// As `TYPE` says it.
    pub fn word(&self) -> &str {
        match self {
            Kind::Other(word) => word,
            kind => TYPES.iter().find(|(known, ..)| known == kind).map_or("", |known| known.1),
        }
    }

    /// The command that says how long such a key is, at once.
    fn length(&self) -> Option<&'static str> {
        TYPES.iter().find(|(known, ..)| known == self).map(|known| known.2)
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

/// A key, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// Its name, which may be any bytes; in JSON as [`name::shown`] writes it.
    #[serde(rename = "key", serialize_with = "name::serialize")]
    pub name: Vec<u8>,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// About how much memory it takes, if the server tells.
    pub memory_bytes: Option<u64>,
    /// A string's bytes, anything else's elements; unknown of a module's type.
    pub length: Option<u64>,
    pub big: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    #[error("{0} has become something of another type meanwhile; what it is now was left alone")]
    Changed(String),
    /// Nothing but `UNLINK` is safe there.
    #[error(
        "{key} is of type {kind}, which can't be removed piece by piece, and this Redis refuses \
         UNLINK: {why}"
    )]
    Whole { key: String, kind: String, why: String },
}
