//! `setnx`: a key that is there or not.
//!
//! # Guarantee
//! `SETNX` creates the key if nobody has, so one holder at a time gets in; `DEL` lets the next one
//! go. There is no time after which a lock ends, so no work outlives it: while nobody dies, it is
//! exact.
//!
//! # Breaks when
//! The holder dies before its `DEL`. The key stays, and whatever it is the lock of is locked for
//! ever: nobody knows any more whose it was, and somebody has to delete it by hand.
//!
//! # Seen in the wild
//! `if redis.setnx(key, 1)`: the first answer that a search turns up, from before Redis 2.6.12
//! (2013), when `SET` learned `NX` and `PX`.

use redis::{RedisError, cmd};

use super::rung::Lock;

/// Whether we are the one who created the key.
pub(super) async fn take(lock: &Lock) -> Result<bool, RedisError> {
    lock.send(cmd("SETNX").arg(&lock.key).arg(&lock.owner)).await
}

/// Whether there was a key to delete.
pub(super) async fn give_back(lock: &Lock) -> Result<bool, RedisError> {
    lock.send(cmd("DEL").arg(&lock.key)).await
}
