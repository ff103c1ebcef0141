//! What it means that a server refuses a command, and what to do.

use std::fmt;

/// The reason for which a server refuses commands. It names no address, user or key, so that it may
/// be shown to anyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    code: String,
    meaning: &'static str,
    advice: &'static str,
}

const PASSWORD: &str = "check the user and the password in the address";
const PRIMARY: &str = "connect to the primary, or wait for the failover";
const CLUSTER: &str = "list nodes of the Cluster in an address of the form \
                       redis-cluster://HOST:PORT,HOST:PORT";
const LATER: &str = "try again later";

/// Codes, with their meaning and the advice for them.
const REASONS: [(&str, &str, &str); 18] = [
    ("NOAUTH", "it demands a password", PASSWORD),
    ("WRONGPASS", "it does not accept the user and the password", PASSWORD),
    (
        "NOPERM",
        "the user lacks a permission",
        "allow this user the command, the key and the channel",
    ),
    ("NODB", "it has no database of that number", "correct the number at the end of the address"),
    ("MOVED", "it is one node of a Cluster", CLUSTER),
    ("ASK", "it is one node of a Cluster", CLUSTER),
    ("CROSSSLOT", "it is a Cluster", CLUSTER),
    ("READONLY", "it is a read-only replica", PRIMARY),
    ("MASTERDOWN", "it is a replica without its primary", PRIMARY),
    ("OOM", "its memory is full", "raise maxmemory, or delete keys"),
    ("NOREPLICAS", "it has fewer replicas than min-replicas-to-write", "start its replicas"),
    (
        "MISCONF",
        "it can't save its data",
        "make the disk of Redis writable, or turn its snapshots off",
    ),
    ("WRONGTYPE", "another program uses its keys", "choose another key_prefix"),
    ("LOADING", "it is loading its data", LATER),
    ("CLUSTERDOWN", "a part of the Cluster is down", LATER),
    ("NOPRIMARY", "the sentinels do not know the primary", "check the name in the address"),
    ("NOTREDIS", "it does not speak as Redis 7 or Valkey", "check the server at the address"),
    ("BUSY", "it is running a long script", LATER),
];

impl Refusal {
    pub(super) fn of_code(code: &str) -> Self {
        let known = REASONS.iter().find(|(known, ..)| *known == code);
        let (_, meaning, advice) = known.copied().unwrap_or((
            "",
            "it reports this error",
            "see the documentation of Redis for this code",
        ));
        Self { code: code.to_owned(), meaning, advice }
    }

    /// The code of Redis, e.g. `NOAUTH`. Where Redis has none: `NODB` if the database of the
    /// address does not exist, `NOPRIMARY` if the sentinels do not know its name, and `NOTREDIS`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What it means, as the rest of a sentence about Redis.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// What to do.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        self.advice
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.meaning)
    }
}
