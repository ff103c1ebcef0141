//! Looking at locks without touching them.

use std::time::Duration;

use super::process::name_in;
use super::{Error, Holder, LockKey, Locks, Redis};

/// Enough to see what is wrong; a shop that leaves more behind needs `redis-cli`.
const MOST: usize = 1_000;
/// How the key of a fenced lock's line ends.
const LINE: &str = ":queue";
/// How the keys end that a fenced lock keeps beside itself.
const BESIDE: [&str; 3] = [LINE, ":seen", ":fence"];

/// A lock as it is in Redis.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
pub struct HeldLock {
    /// The Redis key.
    pub key: String,
    /// Which process holds it, by the name of its replica (without one, by the first digits of its
    /// number); the same as `holder_process` of a refusal.
    pub process: Option<String>,
    /// Who holds it: the whole value.
    pub owner: String,
    /// Since when, in milliseconds of Unix time, as its holder wrote it down.
    pub since_ms: Option<i64>,
    /// How long it lives if nobody renews it; absent when it never expires.
    pub remaining_ms: Option<u64>,
    /// Under which fence, where the lock has one.
    pub fence: Option<i64>,
    /// How many processes wait in line for it. A lock without a fence has no line: those who want
    /// it ask again by themselves, and nobody counts them.
    pub waiting: u64,
}

/// A key as one Redis has it; empty when it is free.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) value: String,
    /// Absent when it never expires.
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

/// Who holds the lock of that Redis key.
pub(super) async fn holder(redis: &Redis, redis_key: &str) -> Result<Holder, Error> {
    Ok(look(redis, redis_key).await?.holder())
}

impl Locks {
    /// Forgets who holds `key`, as a Redis does that was restarted without its data: whoever waits
    /// may have it next, and the holder is not told. For the lab; nothing else is served by it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not answer.
    pub async fn forget(&self, key: &LockKey) -> Result<(), Error> {
        let mut delete = redis::cmd("DEL");
        delete.arg(self.redis_key(key));
        Ok(self.redis().query(delete).await?)
    }

    /// All locks that are held now, tokens included, by key; of very many, about the first 1,000.
    ///
    /// No snapshot: each is as it was when it was looked at, and one that was taken or given back
    /// meanwhile may be missing. Those of a quorum live on its nodes and are not among them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not answer.
    pub async fn held(&self) -> Result<Vec<HeldLock>, Error> {
        let prefix = &self.settings.prefix;
        let mut keys = self.redis.scan(&format!("{prefix}lock:*"), is_a_lock, MOST).await?;
        // A token ends as its client likes, so there all are what they seem.
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

/// Whether that key is a lock, and not what a fenced lock keeps beside itself.
fn is_a_lock(key: &str) -> bool {
    !BESIDE.iter().any(|end| key.ends_with(end))
}

/// The number between the owner and the `@` of a fenced lock's value.
fn fence(value: &str) -> Option<i64> {
    value.rsplit_once('@').and_then(|(front, _)| front.rsplit_once(' ')?.1.parse().ok())
}

/// The time of day behind the `@` of a lock's value.
fn since_ms(value: &str) -> Option<i64> {
    value.rsplit_once('@').and_then(|(_, since)| since.parse().ok())
}
