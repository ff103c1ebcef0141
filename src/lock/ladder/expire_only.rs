//! `expire-only`: a key that is never deleted.
//!
//! # Guarantee
//! Nobody deletes somebody else's lock, because nobody deletes any. While all work is shorter than
//! the TTL, there is one holder at a time.
//!
//! # Breaks when
//! The work outlives the TTL: then it breaks as `owner` does. And it is slow when nothing is wrong:
//! one change per TTL, however short the change. Whoever makes the TTL shorter to sell more breaks
//! it sooner.
//!
//! # Seen in the wild
//! “Let it expire, it's simpler”: after somebody was bitten by `ttl`. It is right where a thing
//! shall be done *at most once in a while* (a mail, a scheduled job): a limit of rate, not a lock.

use redis::{RedisError, cmd};

use super::rung::Lock;

/// Whether we are the one who created the key, which ends by itself.
pub(super) async fn take(lock: &Lock) -> Result<bool, RedisError> {
    let mut set = cmd("SET");
    set.arg(&lock.key).arg(&lock.owner).arg("NX").arg("PX").arg(lock.ttl_ms);
    lock.send(&set).await
}

/// Nothing is given back, and nothing is asked.
pub(super) async fn give_back(_: &Lock) -> Result<bool, RedisError> {
    Ok(true)
}
