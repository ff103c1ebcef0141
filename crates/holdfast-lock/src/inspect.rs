//! Inspection of the locks in Redis.

use std::time::Duration;

use crate::clock::ms;
use crate::key::QUEUE_SUFFIX;
use crate::process::name_in;
use crate::{Error, Holder, LeaseId, Redis};

/// A held lock in Redis.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeldLock {
    /// The Redis key.
    pub key: String,
    /// Name of the process that holds it.
    pub process: Option<String>,
    /// The owner of the lock: the key's whole value.
    pub owner: String,
    /// Time of acquisition in milliseconds of Unix time.
    pub since_ms: Option<i64>,
    /// Time until it expires, unless it is renewed; absent if it never expires.
    pub remaining_ms: Option<u64>,
    /// The fence, if the lock has one.
    pub fence: Option<i64>,
    /// Number of processes in its queue. 0 for a lock without a fence, whose waiters poll.
    pub waiting: u64,
}

/// Returns the value of the lock at that Redis key, empty if it is free, and the holder in it.
pub(crate) async fn value_and_holder(
    redis: &Redis,
    redis_key: &str,
) -> Result<(String, Holder), Error> {
    let commands = ::redis::pipe().get(redis_key).pttl(redis_key).to_owned();
    let (value, ttl_ms): (Option<String>, i64) = redis.send_pipeline(commands).await?;

    let value = value.unwrap_or_default();
    let holder = Holder {
        process: name_in(&value).map(str::to_owned),
        since_ms: since_ms(&value),
        remaining: u64::try_from(ttl_ms).ok().map(Duration::from_millis),
        fence: fence(&value),
        lease: lease(&value).map(LeaseId::new),
    };
    Ok((value, holder))
}

pub(crate) async fn holder(redis: &Redis, redis_key: &str) -> Result<Holder, Error> {
    Ok(value_and_holder(redis, redis_key).await?.1)
}

/// Returns the held locks with those Redis keys, sorted by key.
pub(crate) async fn held_at(redis: &Redis, mut keys: Vec<String>) -> Result<Vec<HeldLock>, Error> {
    keys.sort();
    keys.dedup();
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        let (owner, holder) = value_and_holder(redis, &key).await?;
        // It was released since its key was found.
        if owner.is_empty() {
            continue;
        }

        let Holder { process, since_ms, remaining, fence, .. } = holder;
        let waiting = match fence {
            Some(_) => redis.send(::redis::Cmd::zcard(format!("{key}{QUEUE_SUFFIX}"))).await?,
            None => 0,
        };

        let remaining_ms = remaining.map(ms);
        held.push(HeldLock { key, process, owner, since_ms, remaining_ms, fence, waiting });
    }
    Ok(held)
}

/// Parses the number between the owner and the `@` of a fenced lock's value.
fn fence(value: &str) -> Option<i64> {
    value.rsplit_once('@').and_then(|(front, _)| front.rsplit_once(' ')?.1.parse().ok())
}

/// Returns the owner in a fenced lock's value.
fn lease(value: &str) -> Option<&str> {
    fence(value)?;
    Some(value.split_once(' ')?.0)
}

/// Parses the Unix time behind the `@` of a lock's value.
fn since_ms(value: &str) -> Option<i64> {
    value.rsplit_once('@').and_then(|(_, since)| since.parse().ok())
}
