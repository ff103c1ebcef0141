//! `setnx-expire`: a key, and then a time for it to end.
//!
//! # Guarantee
//! As `setnx`, and a holder that dies blocks the others for one TTL, if it died late enough.
//!
//! # Breaks when
//! The holder dies between the two commands: the key has no expiry yet, and is locked for ever. It
//! takes a crash within a millisecond, so it is met once a year, by somebody else.
//!
//! Or the work outlives the expiry: then it breaks as `ttl` does.
//!
//! # Seen in the wild
//! `setnx` followed by `expire`, in most wrappers written before 2013 and many since; every
//! `set_if_absent(key)` of a cache library that takes its time to live in a second call.

use redis::{RedisError, cmd};

use super::rung::Lock;
use crate::probe::Point;

/// Whether we are the one who created the key. It has an expiry a moment later.
pub(super) async fn take(lock: &Lock) -> Result<bool, RedisError> {
    if !lock.send(cmd("SETNX").arg(&lock.key).arg(&lock.owner)).await? {
        return Ok(false);
    }
    // Whoever dies here leaves a key that never ends.
    lock.pass(Point::Expire).await;
    lock.send(cmd("PEXPIRE").arg(&lock.key).arg(lock.ttl_ms)).await
}

/// Whether there was a key to delete; whose, nobody asks.
pub(super) async fn give_back(lock: &Lock) -> Result<bool, RedisError> {
    lock.send(cmd("DEL").arg(&lock.key)).await
}
