//! `check-then-del`: compares the owner, then deletes the key in a second command.
//!
//! # Guarantee
//! As `ttl`; in addition, a holder whose lease expired usually sees that another one holds the
//! lock: the value is unique per acquisition, and the release compares it before it deletes the
//! key.
//!
//! # Breaks when
//! The lease expires and another holder acquires the lock between `GET` and `DEL`. The `DEL`
//! removes that holder's lock, with the consequences of `ttl`. The two commands are a round trip
//! apart; a pause of the process (garbage collection, a full disk) makes it seconds.
//!
//! # Seen in the wild
//! `if redis.get(key) == token: redis.delete(key)`. The fix is to compare and delete in one script
//! on the server (`owner`).

use holdfast_lock::redis::Error as RedisError;
use redis::cmd;

use super::commands::LockCommands;
use crate::probe::Point;

pub(super) async fn acquire(lock: &LockCommands) -> Result<bool, RedisError> {
    let mut set = cmd("SET");
    set.arg(&lock.key).arg(&lock.owner).arg("NX").arg("PX").arg(lock.ttl_ms);
    lock.send(&set).await
}

/// Deletes the key if its owner matches. Returns whether it matched and the key still existed.
pub(super) async fn release(lock: &LockCommands) -> Result<bool, RedisError> {
    let owner: Option<String> = lock.send(cmd("GET").arg(&lock.key)).await?;
    if owner.as_ref() != Some(&lock.owner) {
        return Ok(false);
    }
    // The lease may expire at this point, and the key may get another owner.
    lock.pass(Point::Delete).await;
    // `DEL`, which also returns what it deleted.
    lock.delete().await
}
