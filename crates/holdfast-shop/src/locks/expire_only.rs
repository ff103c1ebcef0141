//! `expire-only`: a key that is never deleted.
//!
//! # Guarantee
//! No holder deletes another holder's lock, because none deletes any. While all work is shorter
//! than the TTL, there is one holder at a time.
//!
//! # Breaks when
//! The work outlives the TTL: then it breaks as `owner` does. It is also slow without any failure:
//! one change per TTL, even if the change is short. A shorter TTL sells more and breaks sooner.
//!
//! # Seen in the wild
//! “Let it expire, it's simpler”, often after an incident with `ttl`. It is right where an action
//! must run *at most once per period* (a mail, a scheduled job): a rate limit, not a lock.

use holdfast_lock::redis::Error as RedisError;
use redis::cmd;

use super::commands::LockCommands;

pub(super) async fn acquire(lock: &LockCommands) -> Result<bool, RedisError> {
    let mut set = cmd("SET");
    set.arg(&lock.key).arg(&lock.owner).arg("NX").arg("PX").arg(lock.ttl_ms);
    lock.send(&set).await
}

/// Does nothing: the lock ends with its expiry.
pub(super) async fn release(lock: &LockCommands) -> Result<bool, RedisError> {
    lock.note("left");
    Ok(true)
}
