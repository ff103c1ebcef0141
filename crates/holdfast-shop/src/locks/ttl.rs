//! `ttl`: a key created with its expiry in one command, and deleted without comparing its owner.
//!
//! # Guarantee
//! `SET key value NX PX ttl` admits one holder, and no key is ever without an expiry: a holder that
//! dies blocks the others for one TTL at most. While all work is shorter than the TTL, there is one
//! holder at a time.
//!
//! # Breaks when
//! The work outlives the TTL. The second holder is admitted; then the first finishes and deletes
//! the key, which is the *second* holder's by now, and a third is admitted beside the second. One
//! slow request starts this, and it continues as long as requests keep arriving.
//!
//! # Seen in the wild
//! `SET NX EX`, then `DEL` in a `finally`. Passes every test on a machine that is not busy.

use holdfast_lock::redis::Error as RedisError;
use redis::cmd;

use super::commands::LockCommands;

pub(super) async fn acquire(lock: &LockCommands) -> Result<bool, RedisError> {
    let mut set = cmd("SET");
    set.arg(&lock.key).arg(&lock.owner).arg("NX").arg("PX").arg(lock.ttl_ms);
    lock.send(&set).await
}

/// Deletes the key, without comparing its owner. Returns whether it existed.
pub(super) async fn release(lock: &LockCommands) -> Result<bool, RedisError> {
    // `DEL`, which also returns what it deleted.
    lock.delete().await
}
