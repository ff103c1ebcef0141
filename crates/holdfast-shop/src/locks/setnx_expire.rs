//! `setnx-expire`: a key that receives its expiry in a second command.
//!
//! # Guarantee
//! As `setnx`; in addition, a holder that dies after both commands blocks the others for one TTL
//! only.
//!
//! # Breaks when
//! The holder dies between the two commands: the key has no expiry, and the lock is held for ever.
//! The crash has to hit a window of about a millisecond, so it is rare and hard to reproduce.
//!
//! Or the work outlives the expiry: then it breaks as `ttl` does.
//!
//! # Seen in the wild
//! `setnx` followed by `expire`, in most wrappers written before 2013 and many since; every
//! `set_if_absent(key)` of a cache library that sets the expiry in a second call.

use holdfast_lock::redis::Error as RedisError;
use redis::cmd;

use super::commands::LockCommands;
use crate::probe::Point;

pub(super) async fn acquire(lock: &LockCommands) -> Result<bool, RedisError> {
    if !lock.send(cmd("SETNX").arg(&lock.key).arg(&lock.owner)).await? {
        return Ok(false);
    }
    // A crash between the two commands leaves a key without an expiry.
    lock.pass(Point::Expire).await;
    lock.send(cmd("PEXPIRE").arg(&lock.key).arg(lock.ttl_ms)).await
}

/// Deletes the key, without comparing its owner. Returns whether it existed.
pub(super) async fn release(lock: &LockCommands) -> Result<bool, RedisError> {
    // `DEL`, which also returns what it deleted.
    lock.delete().await
}
