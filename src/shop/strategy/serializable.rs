//! `serializable`: let Postgres find out whether two transactions got in each other's way.
//!
//! # Guarantee
//! The code is the plain read-then-update, and the outcome is as if all serializable transactions
//! had run one after the other: of two that read the same row and write it, one is ended with error
//! 40001, and its whole transaction begins again. It is the only strategy here that would also
//! protect a decision made from rows that are read and *not* written.
//!
//! Idempotency keys are looked up before the transaction begins: to read an absent key inside it
//! would take predicate locks on pages of the index, and end transactions that share no row.
//!
//! # Breaks when
//! One of the two is not serializable: the promise holds among their own kind. And in a crowd it
//! gives up, as `version` does, and for more reasons: what Postgres remembers of who read what is
//! coarse, and some are ended that harmed no other.
//!
//! # Seen in the wild
//! “Just set the isolation level”: in one line of configuration, and without the retry, which every
//! manual asks for.

use super::{Guarantee, Isolation, Strategy, none};

/// `isolation level serializable`.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "serializable",
    transaction: Isolation::Serializable,
    attempts: none::MANY_ATTEMPTS,
    guarantee: Guarantee::Among,
    about: "isolation level serializable: Postgres ends one of two, which begins again",
    source: file!(),
    code: include_str!("serializable.rs"),
    ..none::STRATEGY
};
