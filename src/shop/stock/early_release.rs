//! `early-release`: the lock is given back before the transaction commits.
//!
//! # Guarantee
//! None. It looks as if there were one: the read and the write lie under the lock, and the lock is
//! the right one (`owner`, on the item).
//!
//! # Breaks when
//! Two requests follow each other closely. The first gives its lock back and commits a moment
//! later; the second takes the lock between the two and reads what is committed: the old value. No
//! lease has to run out, nobody has to die, and a faster lock makes it worse.
//!
//! # Seen in the wild
//! `@Transactional` on a method with `synchronized` or `lock … unlock` inside: the transaction is
//! begun around the method, and commits after the lock is gone. The lock belongs around the
//! transaction.

use crate::lock::Guards;

/// Gives the locks back, in the middle of the transaction whose work is done.
pub async fn give_back(guards: &mut Guards) {
    let released = std::mem::take(guards).release().await;
    tracing::trace!(?released, "locks given back before the commit");
}
