//! `serializable`: Postgres detects transactions that conflict.
//!
//! # Guarantee
//! The code is plain read-then-update; the outcome is as if all serializable transactions had run
//! one after the other. Of two that read and write one row, one is aborted with error 40001 and
//! retried from its start. It is the only strategy that also protects a decision based on rows that
//! are *not* written. Idempotency keys are looked up before the transaction: reading an absent key
//! in it would take predicate locks on index pages.
//!
//! # Breaks when
//! The decision depends on rows that are not written, and another writer is not serializable. A row
//! that is written is safe from any other writer: if it changed since the read, the write fails.
//! Under contention it gives up, as `version` does, and more often: Postgres tracks reads coarsely,
//! and also aborts transactions that share no row.
//!
//! # Seen in the wild
//! “Just set the isolation level”: one line of configuration, without the retry that it requires.

use super::{Guarantee, Isolation, Strategy, none};

pub(super) const STRATEGY: Strategy = Strategy {
    name: "serializable",
    transaction: Isolation::Serializable,
    attempts: none::MANY_ATTEMPTS,
    guarantee: Guarantee::Always,
    source: file!(),
    code: include_str!("serializable.rs"),
    ..none::STRATEGY
};
