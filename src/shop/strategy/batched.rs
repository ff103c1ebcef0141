//! `batched`: many commands for one value under one fenced lock, with one read and one write.
//!
//! # Guarantee
//! That of `fenced`: the write demands the version that was read and a fence that is not stale.
//! Commands are decided in their order of arrival: each one's `before` is the `after` of the one
//! before it, and each has a ledger entry and a version of its own, as if it had come alone.
//! Writes of several values that are ready at the same time share a statement and its commit.
//!
//! # Breaks when
//! It does not. A replica that is paused in the middle of a batch holds no row: others sell the
//! item again when its lease ends, and its late write matches nothing.
//!
//! # Seen in the wild
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA 2010); the grouped hot-row updates of
//! `PolarDB` and `TXSQL`; every ledger database.

use super::{Strategy, fenced};

/// `fenced`, up to 256 commands at a time.
pub const STRATEGY: Strategy = Strategy {
    name: "batched",
    batches: true,
    about: "fenced, and all who wait for one item share one lock, one read and one write",
    source: file!(),
    code: include_str!("batched.rs"),
    ..fenced::STRATEGY
};
