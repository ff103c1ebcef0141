//! `check-then-del`: look whose it is, then delete it.
//!
//! # Guarantee
//! As `ttl`, and whoever comes back late mostly sees that the lock is somebody else's by now: the
//! value is new with every acquisition, and it is compared before the key is deleted.
//!
//! # Breaks when
//! The lock changes hands between `GET` and `DEL`: the look was true, and is not any more. What is
//! deleted is the next holder's lock, and it goes on as under `ttl`. The two commands are a round
//! trip apart; a pause of the process (a collector of garbage, a full disk) makes it seconds.
//!
//! # Seen in the wild
//! `if redis.get(key) == token: redis.delete(key)`. The cure is to compare and delete in one step,
//! on the server (`owner`).

use redis::{RedisError, cmd};

use super::rung::Lock;
use crate::probe::Point;

/// Whether we are the one who created the key, which ends by itself.
pub(super) async fn take(lock: &Lock) -> Result<bool, RedisError> {
    let mut set = cmd("SET");
    set.arg(&lock.key).arg(&lock.owner).arg("NX").arg("PX").arg(lock.ttl_ms);
    lock.send(&set).await
}

/// Whether the key was ours when we looked, and there when we deleted it.
pub(super) async fn give_back(lock: &Lock) -> Result<bool, RedisError> {
    let owner: Option<String> = lock.send(cmd("GET").arg(&lock.key)).await?;
    if owner.as_ref() != Some(&lock.owner) {
        return Ok(false);
    }
    // It may end here, and be somebody else's.
    lock.pass(Point::Delete).await;
    lock.send(cmd("DEL").arg(&lock.key)).await
}
