//! Inspection of the locks in Redis.

use std::time::Duration;

use super::process::name_in;
use super::{Error, Holder, LockKey, Locks, Redis};

/// Approximate limit of keys per scan; to inspect more, use `redis-cli`.
const MOST: usize = 1_000;
/// Suffix of the key of a fenced lock's queue.
const LINE: &str = ":queue";
/// Suffixes of the keys that a fenced lock keeps beside its own.
const BESIDE: [&str; 3] = [LINE, ":seen", ":fence"];

/// A held lock in Redis.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
pub struct HeldLock {
    /// The Redis key.
    pub key: String,
    /// Name of the replica that holds it (without a name, the first digits of its process's UUID);
    /// the same as `holder_process` in a problem.
    pub process: Option<String>,
    /// The owner of the lock: the key's whole value.
    pub owner: String,
    /// Time of acquisition in milliseconds of Unix time, as recorded in the value.
    pub since_ms: Option<i64>,
    /// Time until it expires, unless it is renewed; absent if it never expires.
    pub remaining_ms: Option<u64>,
    /// The fence, if the lock has one.
    pub fence: Option<i64>,
    /// Number of processes in its queue. 0 for a lock without a fence: its waiters poll and are not
    /// counted.
    pub waiting: u64,
}

/// The state of a key in one Redis; empty if the lock is free.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) value: String,
    /// Absent if the key never expires.
    pub(super) remaining: Option<Duration>,
}

impl Look {
    pub(super) fn holder(&self) -> Holder {
        Holder {
            process: name_in(&self.value).map(str::to_owned),
            since_ms: since_ms(&self.value),
            remaining: self.remaining,
            fence: fence(&self.value),
        }
    }
}

pub(super) async fn look(redis: &Redis, redis_key: &str) -> Result<Look, Error> {
    let commands = ::redis::pipe().get(redis_key).pttl(redis_key).to_owned();
    let (value, ttl_ms): (Option<String>, i64) = redis.pipe(commands).await?;
    let remaining = u64::try_from(ttl_ms).ok().map(Duration::from_millis);
    Ok(Look { value: value.unwrap_or_default(), remaining })
}

/// Returns the holder of the lock at that Redis key.
pub(super) async fn holder(redis: &Redis, redis_key: &str) -> Result<Holder, Error> {
    Ok(look(redis, redis_key).await?.holder())
}

impl Locks {
    /// Deletes the lock on `key`, like a Redis that restarted without its data: the next waiter may
    /// acquire it, and the holder is not notified. For the lab only.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not respond.
    pub async fn forget(&self, key: &LockKey) -> Result<(), Error> {
        let mut delete = redis::cmd("DEL");
        delete.arg(self.redis_key(key));
        Ok(self.redis().query(delete).await?)
    }

    /// Returns all held locks, sorted by key, including those of idempotency keys; about 1,000 of
    /// each at most.
    ///
    /// Not a consistent snapshot: each lock is read at a different time, and a lock that is
    /// acquired or released during the call may be missing. Quorum locks live on their own nodes
    /// and are not included.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not respond.
    pub async fn held(&self) -> Result<Vec<HeldLock>, Error> {
        let prefix = &self.settings.prefix;
        let mut keys = self.redis.scan(&format!("{prefix}lock:*"), is_a_lock, MOST).await?;
        // A client chooses how an idempotency key ends, so its suffix means nothing.
        keys.extend(self.redis.scan(&format!("{prefix}token:*"), |_| true, MOST).await?);
        keys.sort();
        keys.dedup();
        let mut held = Vec::with_capacity(keys.len());
        for key in keys {
            let look = look(&self.redis, &key).await?;
            if look.value.is_empty() {
                continue;
            }
            let Holder { process, since_ms, remaining, fence } = look.holder();
            let waiting = match fence {
                Some(_) => self.redis.query(::redis::Cmd::zcard(format!("{key}{LINE}"))).await?,
                None => 0,
            };
            let remaining_ms =
                remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            let owner = look.value;
            held.push(HeldLock { key, process, owner, since_ms, remaining_ms, fence, waiting });
        }
        Ok(held)
    }
}

/// Returns whether the key is a lock, not one that a fenced lock keeps beside its own.
fn is_a_lock(key: &str) -> bool {
    !BESIDE.iter().any(|end| key.ends_with(end))
}

/// Parses the number between the owner and the `@` of a fenced lock's value.
fn fence(value: &str) -> Option<i64> {
    value.rsplit_once('@').and_then(|(front, _)| front.rsplit_once(' ')?.1.parse().ok())
}

/// Parses the Unix time behind the `@` of a lock's value.
fn since_ms(value: &str) -> Option<i64> {
    value.rsplit_once('@').and_then(|(_, since)| since.parse().ok())
}
