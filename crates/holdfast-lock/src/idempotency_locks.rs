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

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::lease::Leases;
use crate::process::ProcessIdentity;
use crate::redis::set_if_absent;
use crate::{Error, Locks, Redis};

/// Maximum time for which a process that died blocks a key.
const TTL: Duration = Duration::from_secs(3);
/// Two renewals may fail before a lock expires.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Renewals of a lock stop this long after it was acquired: longer than any request takes.
const MAX_RENEWAL: Duration = Duration::from_secs(15);
/// Time to wait for the nodes of a Cluster, less than a call may take: these locks are no
/// precondition of anything, and a silent node must not delay the keys on the others.
const MAX_WAIT_FOR_NODES: Duration = Duration::from_millis(200);
/// Longer than the two calls to one server take.
const MAX_WAIT_FOR_SERVER: Duration = Duration::from_secs(2);
/// Bounds the time for which one script or pipeline blocks Redis.
const MAX_KEYS_PER_CALL: usize = 512;

/// Start of their Redis keys, behind [`crate::Settings::key_prefix`].
pub(crate) const REDIS_KEY_PREFIX: &str = "token:";

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

/// The idempotency locks that one task holds, which are renewed.
#[derive(Debug)]
#[must_use = "locks that are dropped at once exclude nothing"]
pub struct IdempotencyLocks {
    redis: Redis,
    leases: Leases,
    prefix: String,
    process: ProcessIdentity,
    held: Arc<Mutex<HeldKeys>>,
    /// Requested by [`IdempotencyLocks::acquire`], which has not read the responses yet.
    requested: Vec<KeyValue>,
    renewal: Option<AbortOnDropHandle<()>>,
}

/// Redis keys, with their values and the times at which renewals stop.
type HeldKeys = HashMap<String, (String, Instant)>;

/// A Redis key and the value under which its lock is ours.
type KeyValue = (String, String);

/// The results of keys that lie on one server.
type GroupResults = Vec<Result<IdempotencyLockResult, Error>>;

impl IdempotencyLocks {
    /// Creates an empty set.
    pub fn new(locks: &Locks) -> Self {
        Self {
            redis: locks.redis().clone(),
            leases: locks.leases.clone(),
            prefix: format!("{}{REDIS_KEY_PREFIX}", locks.settings().key_prefix),
            process: locks.process.clone(),
            held: Arc::default(),
            requested: Vec::new(),
            renewal: None,
        }
    }

    /// Tries to acquire several locks, without waiting for their holders. `requests` contains the
    /// name of each lock and the fingerprint of the request (without `/`). Returns one result per
    /// lock, in the same order, within 2 s; in a Cluster, within 0.2 s.
    ///
    /// The errors are those of [`Locks::acquire`], in a Cluster only for the keys of the node that
    /// does not respond. What may have been set is released in the background, also if this future
    /// is dropped.
    pub async fn acquire(
        &mut self,
        requests: &[(String, String)],
    ) -> Vec<Result<IdempotencyLockResult, Error>> {
        self.release_in_background();

        let until = Instant::now() + MAX_RENEWAL;
        // One of the whole call: it tells the locks of two calls apart, and the keys those of one.
        let owner = self.process.new_owner();
        // Noted before they are sent: if this future is dropped, they are released.
        self.requested.extend(requests.iter().map(|(name, fingerprint)| {
            (format!("{}{name}", self.prefix), format!("{fingerprint}/{owner}"))
        }));
        let results = self.request().await;

        let mut held = self.held.lock();
        for ((key, value), result) in self.requested.drain(..).zip(&results) {
            if matches!(result, Ok(IdempotencyLockResult::Acquired)) {
                held.insert(key, (value, until));
            }
        }
        if !held.is_empty() && self.renewal.is_none() {
            let renewal = renew_periodically(self.redis.clone(), Arc::downgrade(&self.held));
            self.renewal = Some(AbortOnDropHandle::new(self.redis.spawn(renewal)));
        }
        drop(held);
        results
    }

    /// Sends the requests, and returns the results that arrive in time. The requests are tasks of
    /// their own, which release what comes later.
    async fn request(&self) -> Vec<Result<IdempotencyLockResult, Error>> {
        let deadline = Instant::now() + max_wait(&self.redis);
        let groups = self.requested.chunks(max_keys(&self.redis));
        let requests = groups.map(|group| {
            let (sender, receiver) = oneshot::channel();
            self.redis.spawn(acquire_group(self.redis.clone(), group.to_vec(), sender));
            results_until(deadline, receiver, group.len())
        });
        join_all(requests).await.concat()
    }

    /// Leaves a lock to expire within three seconds, because its command is done or its outcome
    /// unknown.
    pub fn leave_to_expire(&mut self, name: &str) {
        self.held.lock().remove(&format!("{}{name}", self.prefix));
    }

    /// Releases locks under which nothing was written: in the background, if Redis does not confirm
    /// it in time or this future is dropped.
    pub async fn release(&mut self, names: &[String]) {
        let released: Vec<KeyValue> = {
            let mut held = self.held.lock();
            let keys = names.iter().map(|name| format!("{}{name}", self.prefix));
            keys.filter_map(|key| held.remove_entry(&key))
                .map(|(key, (value, _))| (key, value))
                .collect()
        };
        if released.is_empty() {
            return;
        }

        // In a task: the locks are in no list any more that a drop of this future would release.
        let redis = self.redis.clone();
        let deleting = self.redis.spawn(async move { delete(&redis, &released).await });
        let _ = timeout(max_wait(&self.redis), deleting).await;
    }

    /// Releases what was requested by a call that was dropped.
    fn release_in_background(&mut self) {
        let requested = std::mem::take(&mut self.requested);
        if !requested.is_empty() {
            let redis = self.redis.clone();
            let deleting = async move { delete(&redis, &requested).await };
            self.leases.spawn_release(&self.redis, deleting);
        }
    }
}

impl Drop for IdempotencyLocks {
    fn drop(&mut self) {
        self.renewal = None;
        let held = std::mem::take(&mut *self.held.lock());
        self.requested.extend(held.into_iter().map(|(key, (value, _))| (key, value)));
        self.release_in_background();
    }
}

/// Returns the results of a group of that size; those that come after the deadline are errors.
async fn results_until(
    deadline: Instant,
    mut results: oneshot::Receiver<GroupResults>,
    size: usize,
) -> GroupResults {
    let arrived = match timeout_at(deadline, &mut results).await {
        Ok(arrived) => arrived.ok(),
        Err(_) => {
            // A group that sends later learns that it is late.
            results.close();
            results.try_recv().ok()
        }
    };
    arrived.unwrap_or_else(|| vec![Err(crate::redis::Error::timed_out().into()); size])
}

/// Requests locks, and sends the results. Releases what is not known to be held: after an error,
/// and if the caller does not wait any more.
async fn acquire_group(redis: Redis, group: Vec<KeyValue>, results: oneshot::Sender<GroupResults>) {
    let set = set_all(&redis, &group).await;
    let unknown = set.as_ref().is_err_and(crate::redis::Error::was_sent);
    let each = match set {
        Ok(set) => set.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error.into()); group.len()],
    };

    let late = results.send(each).is_err();
    if unknown || late {
        delete(&redis, &group).await;
    }
}

/// Sets the locks that do not exist, and compares the values of the others.
async fn set_all(
    redis: &Redis,
    locks: &[KeyValue],
) -> Result<Vec<IdempotencyLockResult>, crate::redis::Error> {
    let sets = locks.iter().map(|(key, value)| set_if_absent(key, value, TTL));
    let set: Vec<Option<()>> = send(redis, sets.collect()).await?;

    let refused = locks.iter().zip(&set).filter(|(_, set)| set.is_none());
    let gets = refused.map(|((key, _), _)| Cmd::get(key)).collect();
    let mut current = send::<Option<String>>(redis, gets).await?.into_iter();

    let results = locks.iter().zip(set).map(|((_, value), set)| match set {
        Some(()) => IdempotencyLockResult::Acquired,
        // Without a value, it expired between the two commands.
        None => match current.next().flatten() {
            Some(current) => compare(&current, value),
            None => IdempotencyLockResult::InFlight,
        },
    });
    Ok(results.collect())
}

async fn send<T>(redis: &Redis, commands: Vec<Cmd>) -> Result<Vec<T>, crate::redis::Error>
where
    T: FromRedisValue,
{
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = ::redis::pipe();
    for command in commands {
        pipeline.add_command(command);
    }
    redis.send_pipeline(pipeline).await
}

/// Returns `InFlight` for values of the same request, else `Mismatch`, by their fingerprints.
fn compare(theirs: &str, ours: &str) -> IdempotencyLockResult {
    let [theirs, ours] = [theirs, ours].map(|value| value.split('/').next());
    if theirs == ours { IdempotencyLockResult::InFlight } else { IdempotencyLockResult::Mismatch }
}

async fn delete(redis: &Redis, locks: &[KeyValue]) {
    let redis = redis.for_release();
    join_all(locks.chunks(max_keys(&redis)).map(|some| redis.delete_all_if(some))).await;
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
        let mut locks: Vec<KeyValue> = Vec::new();
        for (key, (value, until)) in held.lock().iter() {
            if now < *until {
                locks.push((key.clone(), value.clone()));
            }
        }
        // Not kept during the call, so that the set can be dropped, which ends this task.
        drop(held);

        let chunks = locks.chunks(max_keys(&redis));
        join_all(chunks.map(|some| redis.renew_all_if(some, TTL))).await;
    }
}

fn max_wait(redis: &Redis) -> Duration {
    if redis.is_cluster() { MAX_WAIT_FOR_NODES } else { MAX_WAIT_FOR_SERVER }
}

/// Returns how many keys one call may have: those of a Cluster lie on several nodes.
fn max_keys(redis: &Redis) -> usize {
    if redis.is_cluster() { 1 } else { MAX_KEYS_PER_CALL }
}
