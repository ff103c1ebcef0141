//! `fenced`: a write that checks its fence and the version it was computed from.
//!
//! # Guarantee
//! A write happens only if the row has the version that was read (every write raises it) and no
//! holder with a higher fence has written since. The version prevents lost updates; the fence alone
//! would not: with fences 1 and 2, *read 1, read 2, write 1, write 2* passes both checks and loses
//! a sale. The fence distinguishes a *stale* holder from a row that merely changed. No row is
//! locked between read and write, so a paused holder blocks others for no longer than its lease.
//!
//! # Breaks when
//! It does not: every write is compared with the row, even if the lock fails.
//!
//! # Seen in the wild
//! `where version = ?` of object mappers; fences, whose check lock libraries leave to the store.

use super::{Guarantee, Isolation, Strategy, WriteGuard, none};
use crate::locks::Lock;

pub(super) const STRATEGY: Strategy = Strategy {
    name: "fenced",
    lock: Some(Lock::Fenced),
    transaction: Isolation::Autocommit,
    guard: WriteGuard::VersionAndFence,
    guarantee: Guarantee::Always,
    source: file!(),
    code: include_str!("fenced.rs"),
    ..none::STRATEGY
};
