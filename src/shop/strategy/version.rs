//! `version`: write only if the row is still as it was read.
//!
//! # Guarantee
//! Every write raises the row's version, and every write demands the version that it read: of two
//! that read the same one, the second matches no row, writes nothing, and begins again with the
//! read. No lock is held while a process computes; read and write are one statement each.
//!
//! # Breaks when
//! It does not break; it gives up. In a crowd on one row one of all succeeds per round and the
//! others have worked for nothing. Attempts are bounded, with a random pause between them that
//! grows; a command that loses all of them is rejected as `overloaded`.
//!
//! # Seen in the wild
//! `@Version` of JPA, `lock_version` of Rails, `ETag` and `If-Match` of HTTP: the optimistic lock.
//! Often without the retry, so that the second person loses what they typed.

use super::{Guarantee, Guard, Isolation, Strategy, none};

/// `update … where version = <what was read>`.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "version",
    transaction: Isolation::Autocommit,
    guard: Guard::Version,
    attempts: none::MANY_ATTEMPTS,
    guarantee: Guarantee::Always,
    about: "update … where version = what was read; a write that matches no row reads again",
    source: file!(),
    code: include_str!("version.rs"),
    ..none::STRATEGY
};
