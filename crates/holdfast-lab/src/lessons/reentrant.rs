//! Lesson `reentrant`: a caller that holds a lock acquires it again: with a plain lock, with the
//! guard passed down, and with a lock that counts.

use anyhow::Context as _;
use holdfast_lock::{Guards, LockKey, LockKind, Locks, Wait};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::{LessonResult, Scenario, acquire, lock_client, whole_ms};
use holdfast_base::messages::message;
use holdfast_story::EventKind;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let prefix = lab.unique_key("reentrant:");
    let locks = lock_client(&lab.cluster.redis_url, &prefix, "lesson")?;
    let key = LockKey::new("{sku:tea}")?;

    lab.say(message!("run-reentrant-step-1"));
    lab.scene("nested");
    let mut outer = lab.actor(message!("run-label-a-outer-call"));
    let mut inner = lab.actor(message!("run-label-a-inner-call"));
    outer.happens(EventKind::Wait);
    let guards = acquire_free(&locks, LockKind::Owner, &key).await?;
    outer.happens(EventKind::Held);

    let began = Instant::now();
    inner.happens(EventKind::Wait);
    let again = acquire(&locks, LockKind::Owner, Wait::Retry, &key, None).await?;
    let waited = whole_ms(began.elapsed());
    inner.happens(if again.is_none() { EventKind::Busy } else { EventKind::Held });

    let holder = locks.holder(&key).await?.process.unwrap_or_default();
    let itself = again.is_none() && holder == "lesson";
    lab.say(message!("run-reentrant-step-2", waited, holder));
    lab.evidence(message!("run-reentrant-fact-1"), waited, itself);
    guards.release().await;
    outer.happens(EventKind::Release);
    lab.record_lane(outer);
    lab.record_lane(inner);

    lab.say(message!("run-reentrant-step-3"));
    let guards = acquire_free(&locks, LockKind::Watchdog, &key).await?;
    let handed_down = guards.get(&key).is_some_and(|guard| guard.key() == &key);
    guards.release().await;

    let mut redis = lab.redis().await?;
    lab.say(message!("run-reentrant-step-4"));
    let counts = counts(&mut redis, &lab.unique_key("counted")).await?;

    let shared = lab.unique_key("shared-name");
    let first = lock(&mut redis, &shared, "replica 8080").await?;
    let second = lock(&mut redis, &shared, "replica 8080").await?;
    let both_in = (first, second) == (1, 2);
    lab.say(message!("run-reentrant-step-5"));
    lab.evidence(message!("run-reentrant-fact-2"), second, both_in);

    let verdict = message!("run-reentrant-verdict", waited);
    Ok(LessonResult::of_scenes(itself && handed_down && counts && both_in, verdict))
}

async fn acquire_free(locks: &Locks, kind: LockKind, key: &LockKey) -> anyhow::Result<Guards> {
    acquire(locks, kind, Wait::Try, key, None).await?.context("the lock is busy")
}

/// Returns whether a reentrant lock admits its owner twice, and another one after two releases.
async fn counts(redis: &mut MultiplexedConnection, key: &str) -> anyhow::Result<bool> {
    let twice =
        lock(redis, key, "request 1").await? == 1 && lock(redis, key, "request 1").await? == 2;
    let other = lock(redis, key, "request 2").await? == 0;
    let kept =
        unlock(redis, key, "request 1").await? == 1 && lock(redis, key, "request 2").await? == 0;
    let free =
        unlock(redis, key, "request 1").await? == 0 && lock(redis, key, "request 2").await? == 1;

    Ok(twice && other && kept && free)
}

/// Acquires a reentrant lock, a hash of the owner's name and its count. Returns the count, or 0 if
/// another owner holds it.
async fn lock(redis: &mut MultiplexedConnection, key: &str, owner: &str) -> anyhow::Result<i64> {
    let script = Script::new(
        "if redis.call('exists', KEYS[1]) == 1
            and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
         local count = redis.call('hincrby', KEYS[1], ARGV[1], 1)
         redis.call('pexpire', KEYS[1], 10000)
         return count",
    );
    Ok(script.key(key).arg(owner).invoke_async(redis).await?)
}

/// Releases the lock once. Returns the owner's remaining count; at 0 the lock is free.
async fn unlock(redis: &mut MultiplexedConnection, key: &str, owner: &str) -> anyhow::Result<i64> {
    let script = Script::new(
        "local count = redis.call('hincrby', KEYS[1], ARGV[1], -1)
         if count <= 0 then redis.call('del', KEYS[1]) end
         return count",
    );
    Ok(script.key(key).arg(owner).invoke_async(redis).await?)
}
