//! `version`: write only if the row still has the version that was read.
//!
//! # Guarantee
//! Every write raises the row's version and requires the version it read: of two requests that read
//! the same one, the second matches no row, writes nothing and starts again with the read. No lock
//! is held while a process computes; read and write are one statement each.
//!
//! # Breaks when
//! It does not break; it gives up. Under contention one request per round succeeds and the work of
//! all others is wasted. Attempts are bounded, with a growing random pause between them; a command
//! that fails all of them is rejected as `overloaded`.
//!
//! # Seen in the wild
//! `@Version` of JPA, `lock_version` of Rails, `ETag` and `If-Match` of HTTP: the optimistic lock.
//! Often without the retry, so that the second user loses their input.

use super::{Guarantee, Isolation, Strategy, WriteGuard, none};

pub(super) const STRATEGY: Strategy = Strategy {
    name: "version",
    transaction: Isolation::Autocommit,
    guard: WriteGuard::Version,
    attempts: none::MANY_ATTEMPTS,
    guarantee: Guarantee::Always,
    source: file!(),
    code: include_str!("version.rs"),
    ..none::STRATEGY
};
