//! `ttl`: a key with its expiry, created in one command and deleted by whoever is done.
//!
//! # Guarantee
//! `SET key value NX PX ttl` lets one holder in, and no key is ever without an expiry: a holder
//! that dies blocks the others for one TTL at most. While all work is shorter than the TTL, there
//! is one holder at a time.
//!
//! # Breaks when
//! The work outlives the TTL. The next one is let in; then the first is done and deletes the key,
//! which is the *second* one's by now, and the third is let in beside the second. Who then deletes
//! the third one's … : one slow request is enough, and it goes on as long as requests keep coming.
//!
//! # Seen in the wild
//! `SET NX EX`, then `DEL` in a `finally`. Looks right, and passes every test on a machine that is
//! not busy.

use redis::{RedisError, cmd};

use super::rung::Lock;

/// Whether we are the one who created the key, which ends by itself.
pub(super) async fn take(lock: &Lock) -> Result<bool, RedisError> {
    let mut set = cmd("SET");
    set.arg(&lock.key).arg(&lock.owner).arg("NX").arg("PX").arg(lock.ttl_ms);
    lock.send(&set).await
}

/// Whether there was a key to delete; whose, nobody asks.
pub(super) async fn give_back(lock: &Lock) -> Result<bool, RedisError> {
    lock.send(cmd("DEL").arg(&lock.key)).await
}
