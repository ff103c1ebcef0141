//! `batched`: many commands for one value under one fenced lock, with one read and one write.
//!
//! # Guarantee
//! That of `fenced`: the write requires the version that was read and a fence that is not stale.
//! Commands are decided in FIFO order: the `before` of each is the `after` of the previous one, and
//! each has its own ledger entry and version, as if executed alone. Writes of several values that
//! are ready at the same time share a statement and its commit.
//!
//! # Breaks when
//! It does not. A replica that is paused during a batch locks no row: others sell the item again
//! when its lease ends, and its late write matches no row.
//!
//! # Seen in the wild
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA 2010); the grouped hot-row updates of
//! `PolarDB` and `TXSQL`; every ledger database.

use super::{Strategy, fenced};

pub const STRATEGY: Strategy = Strategy {
    name: "batched",
    batches: true,
    source: file!(),
    code: include_str!("batched.rs"),
    ..fenced::STRATEGY
};
