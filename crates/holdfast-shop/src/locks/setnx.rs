//! `setnx`: a lock is held while its key exists.
//!
//! # Guarantee
//! `SETNX` creates the key only if it does not exist, so one holder at a time is admitted; `DEL`
//! releases the lock. It has no expiry, so no work outlives it: it is exact as long as no holder
//! dies.
//!
//! # Breaks when
//! The holder dies before its `DEL`. The key stays and the lock is held for ever, until an operator
//! deletes the key by hand.
//!
//! # Seen in the wild
//! `if redis.setnx(key, 1)`: the first result of many searches, from before Redis 2.6.12 (2013),
//! which added `NX` and `PX` to `SET`.

use holdfast_lock::redis::Error as RedisError;
use redis::cmd;

use super::commands::LockCommands;

pub(super) async fn acquire(lock: &LockCommands) -> Result<bool, RedisError> {
    lock.send(cmd("SETNX").arg(&lock.key).arg(&lock.owner)).await
}

/// Deletes the key, without comparing its owner. Returns whether it existed.
pub(super) async fn release(lock: &LockCommands) -> Result<bool, RedisError> {
    // `DEL`, which also returns what it deleted.
    lock.delete().await
}
