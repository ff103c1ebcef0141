//! Looking at locks without touching them.

use std::time::Duration;

use super::{Error, Holder, Locks, Redis};

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
    /// Who holds it.
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

/// Who holds the lock of that Redis key.
pub(super) async fn holder(redis: &Redis, redis_key: &str) -> Result<Holder, Error> {
    let commands = ::redis::pipe().get(redis_key).pttl(redis_key).to_owned();
    let (value, ttl_ms): (Option<String>, i64) = redis.pipe(commands).await?;
    Ok(Holder {
        since_ms: value.as_deref().and_then(since_ms),
        remaining: u64::try_from(ttl_ms).ok().map(Duration::from_millis),
        fence: value.as_deref().and_then(fence),
    })
}

impl Locks {
    /// All locks that are held now, tokens included, by key.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn held(&self) -> Result<Vec<HeldLock>, Error> {
        let prefix = &self.settings.prefix;
        let mut keys = self.redis.scan(&format!("{prefix}lock:*"), is_a_lock, MOST).await?;
        // A token ends as its client likes, so there all are what they seem.
        keys.extend(self.redis.scan(&format!("{prefix}token:*"), |_| true, MOST).await?);
        keys.sort();
        keys.dedup();
        let mut held = Vec::with_capacity(keys.len());
        for key in keys {
            let commands = ::redis::pipe().get(&key).pttl(&key).to_owned();
            let (owner, ttl_ms): (Option<String>, i64) = self.redis.pipe(commands).await?;
            let Some(owner) = owner else { continue };
            let fence = fence(&owner);
            let waiting = match fence {
                Some(_) => self.redis.query(::redis::Cmd::zcard(format!("{key}{LINE}"))).await?,
                None => 0,
            };
            let remaining_ms = u64::try_from(ttl_ms).ok();
            held.push(HeldLock {
                since_ms: since_ms(&owner),
                key,
                owner,
                remaining_ms,
                fence,
                waiting,
            });
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
