//! `fenced`: a write that shows its fence and the version it was computed from.
//!
//! # Guarantee
//! The write happens only if the row is as it was read (`version`, which every write raises) and no
//! holder with a higher fence has written since. Equality on the version is what makes a lost
//! update impossible; the fence alone would not: with fences 1 and 2, *read 1, read 2, write 1,
//! write 2* passes both checks and loses a sale. The fence tells a *stale* holder (another one has
//! had the lock) from a row that merely moved.
//!
//! Read and write are one statement each, and the write commits itself: no row is locked and no
//! transaction is open while the process computes, so a paused holder blocks others for no longer
//! than its lease.
//!
//! # Breaks when
//! It does not: whatever the lock does, the write is compared with the row.
//!
//! # Seen in the wild
//! `where version = ?` is every object mapper's optimistic lock; fences checked by the store itself
//! are what lock libraries recommend and leave to the reader.

use super::{Guarantee, Guard, Isolation, Strategy, none};
use crate::lock::Kind;

/// The lock of this project, one command at a time.
pub(super) const STRATEGY: Strategy = Strategy {
    name: "fenced",
    lock: Some(Kind::Fenced),
    transaction: Isolation::Autocommit,
    guard: Guard::VersionAndFence,
    guarantee: Guarantee::Always,
    about: "the lock of this project: every write shows its fence and the version it read",
    source: file!(),
    code: include_str!("fenced.rs"),
    ..none::STRATEGY
};
