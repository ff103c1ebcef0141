//! `early-release`: the lock is released before the transaction commits.
//!
//! # Guarantee
//! None, although it looks safe: the read and the write are under the lock, and the lock is the
//! right one (`owner`, on the item).
//!
//! # Breaks when
//! Two requests follow each other closely. The first releases its lock and commits a moment later;
//! the second acquires the lock in between and reads the committed value, which is the old one. No
//! lease has to expire, no process has to die, and a faster lock makes it worse.
//!
//! # Seen in the wild
//! `@Transactional` on a method with `synchronized` or `lock … unlock` inside: the transaction
//! begins and commits outside the lock. The lock belongs around the transaction.

use super::{Mistake, Strategy, none};
use crate::locks::Lock;

pub(super) const STRATEGY: Strategy = Strategy {
    name: "early-release",
    lock: Some(Lock::Owner),
    mistake: Some(Mistake::EarlyRelease),
    source: file!(),
    code: include_str!("early_release.rs"),
    ..none::STRATEGY
};
