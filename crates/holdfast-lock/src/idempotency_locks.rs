//! Locks of idempotency keys: at most one request per key is in flight.
//!
//! Each is a plain `SET NX PX` with the request's fingerprint in its value, so that a second
//! request with the same key learns at once whether it is a duplicate or a mismatch. A lock lives
//! for 3 s and is renewed while it is held, for 15 s at most.
//!
//! Does not guarantee that a key is used once, which takes a unique constraint in the database:
//! these locks only detect duplicates earlier.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue};
use tokio::time::Instant;

use crate::process::Process;
use crate::redis::set_if_absent;
use crate::task::AbortOnDrop;
use crate::{Error, Locks, Redis};

/// Maximum time for which a process that died blocks a key.
const TTL: Duration = Duration::from_secs(3);
/// Two renewals may fail before a lock expires.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Renewals of a lock stop this long after it was acquired: longer than any request takes.
const MAX_RENEWAL: Duration = Duration::from_secs(15);
/// Bounds the time for which one script blocks Redis.
const MAX_KEYS_PER_SCRIPT: usize = 512;
/// Upper bound of locks to delete while Redis is unavailable; they also expire by themselves.
const MAX_TO_DELETE: usize = 10_000;

/// Start of their Redis keys, behind [`crate::Settings::key_prefix`]. (*Token* is an older name of
/// an idempotency key.)
pub const REDIS_KEY_PREFIX: &str = "token:";

/// The result of acquiring the lock of one idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdempotencyLockResult {
    /// The caller holds it.
    Acquired,
    /// The same request is in flight.
    InFlight,
    /// A different request with the same key is in flight.
    Mismatch,
}

/// The idempotency locks that one task holds. Renewed until they are left to expire or released, or
/// this is dropped.
#[derive(Debug)]
#[must_use = "locks that are dropped at once exclude nothing"]
pub struct IdempotencyLocks {
    redis: Redis,
    prefix: String,
    process: Process,
    held: Arc<Mutex<HeldKeys>>,
    /// Possibly set in Redis, to be deleted.
    to_delete: Vec<KeyValue>,
    renewal: Option<AbortOnDrop>,
}

/// Redis keys, with their values and the times at which renewals stop.
type HeldKeys = HashMap<String, (String, Instant)>;

/// A Redis key and the value under which its lock is ours.
type KeyValue = (String, String);

impl IdempotencyLocks {
    /// Creates a set of idempotency locks that holds none yet.
    pub fn new(locks: &Locks) -> Self {
        Self {
            redis: locks.redis().clone(),
            prefix: format!("{}{REDIS_KEY_PREFIX}", locks.settings().key_prefix),
            process: locks.process().clone(),
            held: Arc::default(),
            to_delete: Vec::new(),
            renewal: None,
        }
    }

    /// Tries to acquire several locks, without waiting. `requests` contains, per lock, its name
    /// (the part of its Redis key that follows [`REDIS_KEY_PREFIX`]) and the fingerprint of the
    /// request (without `/`). Returns one result per lock, in the same order.
    ///
    /// # Errors
    /// Those of Redis, as for [`Locks::acquire`]. The next call, or drop, releases what may have
    /// been set, also if this future is dropped.
    pub async fn acquire(
        &mut self,
        requests: &[(String, String)],
    ) -> Result<Vec<IdempotencyLockResult>, Error> {
        self.delete().await;
        let before = self.to_delete.len();
        // They stay there until the responses say which were set.
        self.to_delete.extend(requests.iter().map(|(name, fingerprint)| {
            let value = format!("{fingerprint}/{}", self.process.new_owner());
            (format!("{}{name}", self.prefix), value)
        }));
        let ours = &self.to_delete[before..];
        let until = Instant::now() + MAX_RENEWAL;
        let sets = ours.iter().map(|(key, value)| set_if_absent(key, value, TTL)).collect();
        let set: Vec<Option<()>> = self.send(sets).await?;
        let refused = ours.iter().zip(&set).filter(|(_, set)| set.is_none());
        let gets = refused.map(|((key, _), _)| Cmd::get(key)).collect();
        let mut current = self.send::<Option<String>>(gets).await?.into_iter();

        let mut held = self.held.lock();
        let mut results = Vec::with_capacity(requests.len());
        for ((key, value), set) in self.to_delete.drain(before..).zip(set) {
            results.push(if set.is_some() {
                held.insert(key, (value, until));
                IdempotencyLockResult::Acquired
            } else {
                // Without a value, it expired between the two commands.
                let current = current.next().flatten();
                current.map_or(IdempotencyLockResult::InFlight, |current| compare(&current, &value))
            });
        }
        let any_held = !held.is_empty();
        drop(held);
        if any_held && self.renewal.is_none() {
            let renewal = renew_periodically(self.redis.clone(), Arc::downgrade(&self.held));
            self.renewal = Some(AbortOnDrop::spawn(self.redis.runtime(), renewal));
        }
        Ok(results)
    }

    /// Gives up a lock without releasing it, because its command is done or its outcome unknown:
    /// it expires within three seconds.
    pub fn leave_to_expire(&mut self, name: &str) {
        self.held.lock().remove(&format!("{}{name}", self.prefix));
    }

    /// Releases locks under which nothing was written. It does not fail: the next call, or drop,
    /// releases what Redis did not confirm (also if this future is dropped), and it expires within
    /// three seconds anyway.
    pub async fn release(&mut self, names: &[String]) {
        {
            let mut held = self.held.lock();
            let released = names.iter().filter_map(|name| {
                let (key, (value, _)) = held.remove_entry(&format!("{}{name}", self.prefix))?;
                Some((key, value))
            });
            self.to_delete.extend(released);
        }
        self.delete().await;
    }

    async fn delete(&mut self) {
        let deleted = delete(&self.redis, &self.to_delete).await.is_ok();
        if deleted || self.to_delete.len() > MAX_TO_DELETE {
            self.to_delete.clear();
        }
    }

    /// Sends commands in one pipeline; in a Cluster separately, because keys are on several nodes.
    async fn send<T>(&self, commands: Vec<Cmd>) -> Result<Vec<T>, crate::redis::Error>
    where
        T: FromRedisValue + Send + 'static,
    {
        if self.redis.is_cluster() {
            return try_join_all(commands.into_iter().map(|one| self.redis.query(one))).await;
        }
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = ::redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        self.redis.query_pipeline(pipeline).await
    }
}

impl Drop for IdempotencyLocks {
    fn drop(&mut self) {
        self.renewal = None;
        let mut rest = std::mem::take(&mut self.to_delete);
        rest.extend(self.held.lock().drain().map(|(key, (value, _))| (key, value)));
        if !rest.is_empty() {
            let redis = self.redis.for_release();
            self.redis.runtime().spawn(async move { delete(&redis, &rest).await });
        }
    }
}

/// Returns `InFlight` for values of the same request, else `Mismatch`, by their fingerprints.
fn compare(theirs: &str, ours: &str) -> IdempotencyLockResult {
    let [theirs, ours] = [theirs, ours].map(|value| value.split('/').next());
    if theirs == ours { IdempotencyLockResult::InFlight } else { IdempotencyLockResult::Mismatch }
}

async fn delete(redis: &Redis, locks: &[KeyValue]) -> Result<(), crate::redis::Error> {
    let chunks = locks.chunks(max_keys(redis)).map(|some| redis.delete_all_if(some));
    // Sends all chunks, even if some fail.
    join_all(chunks).await.into_iter().try_for_each(|deleted| deleted.map(drop))
}

/// Renews the held locks until [`IdempotencyLocks`] is dropped. The next tick repeats a failed
/// renewal.
async fn renew_periodically(redis: Redis, held: Weak<Mutex<HeldKeys>>) {
    let mut ticks = tokio::time::interval(RENEWAL_INTERVAL);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(held) = held.upgrade() else { return };
        let now = Instant::now();
        let renewed = |(key, (value, until)): (&String, &(String, Instant))| {
            (now < *until).then(|| (key.clone(), value.clone()))
        };
        let locks: Vec<KeyValue> = held.lock().iter().filter_map(renewed).collect();
        drop(held);
        let chunks = locks.chunks(max_keys(&redis));
        join_all(chunks.map(|some| redis.renew_all_if(some, TTL))).await;
    }
}

fn max_keys(redis: &Redis) -> usize {
    if redis.is_cluster() { 1 } else { MAX_KEYS_PER_SCRIPT }
}
