//! Lesson `failover`: a lock that was replicated exists on the replica of a Redis. Then the replica
//! loses the primary *before* the lock is acquired, so that it certainly lacks it; the primary is
//! killed, and the replica is promoted.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_lock::{Guards, LockKey, LockKind, Locks, Wait};
use redis::aio::MultiplexedConnection;

use super::{LESSON_KEY_PREFIX, LessonResult, Scenario, acquire, connect, lock_client, poll};
use holdfast_base::messages::message;
use holdfast_services::TempRedis;
use holdfast_story::EventKind;

/// Shorter than a connection's response timeout.
const WAIT_MS: u32 = 300;
const LEASE: Duration = Duration::from_secs(30);

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let key = LockKey::new("{sku:tea}")?;
    lab.say(message!("run-failover-step-1"));
    let mut primary = TempRedis::start().await?;
    let replica = TempRedis::start_with(&primary.password, Some(primary.port)).await?;

    let mut primary_there = connect(&primary.url).await?;
    let mut replica_there = connect(&replica.url).await?;
    let before = lock_client(&primary.url, LESSON_KEY_PREFIX, "A")?;
    let after = lock_client(&replica.url, LESSON_KEY_PREFIX, "B")?;

    let copied = try_lock(&before, &key).await?.context("the lock is busy")?;
    let copies = wait_until_copied(&mut primary_there).await?;
    let has_it = is_locked(&mut replica_there).await?;
    lab.say(message!("run-failover-step-2", copies));

    copied.release().await;
    // The release is replicated too before the link breaks.
    wait_until_copied(&mut primary_there).await?;

    lab.say(message!("run-failover-step-3"));
    lab.scene("failover");
    let [mut a, mut b] = ["A", "B"].map(|name| lab.actor(name));
    let mut old = lab.actor(message!("run-label-redis-primary"));
    let mut new = lab.actor(message!("run-label-redis-replica"));
    // Its primary is now a port at which no process listens.
    replica_of(&mut replica_there, "127.0.0.1", "1").await?;
    new.happens(EventKind::Cut);

    a.happens(EventKind::Wait);
    let by_a = try_lock(&before, &key).await?.context("the lock is busy")?;
    a.happens(EventKind::Held);
    let uncopied = copies_of_all(&mut primary_there).await?;
    let lacks_it = !is_locked(&mut replica_there).await?;

    primary.kill().await?;
    old.happens(EventKind::Killed);
    replica_of(&mut replica_there, "NO", "ONE").await?;
    new.happens(EventKind::Promoted);
    lab.say(message!("run-failover-step-4"));

    b.happens(EventKind::Wait);
    let by_b = try_lock(&after, &key).await?.context("B does not get the lock")?;
    b.happens(EventKind::Held);
    for lane in [a, b, old, new] {
        lab.record_lane(lane);
    }
    lab.say(message!("run-failover-step-5"));

    // No release: the primary that granted the lock is dead.
    by_a.leave_to_expire();
    by_b.release().await;
    let counted = message!("run-failover-counted", copies, uncopied);
    lab.evidence(message!("run-failover-fact-1"), counted, copies == 1 && uncopied == 0);
    let verdict = message!("run-failover-verdict", uncopied);
    Ok(LessonResult::of_scenes(copies == 1 && has_it && lacks_it && uncopied == 0, verdict))
}

async fn try_lock(locks: &Locks, key: &LockKey) -> anyhow::Result<Option<Guards>> {
    acquire(locks, LockKind::Owner, Wait::Try, key, Some(LEASE)).await
}

async fn replica_of(
    redis: &mut MultiplexedConnection,
    host: &str,
    port: &str,
) -> anyhow::Result<()> {
    Ok(redis::cmd("REPLICAOF").arg(host).arg(port).exec_async(redis).await?)
}

/// Returns how many replicas have every write so far. `WAIT` covers the writes of its own
/// connection, so this connection writes last.
async fn copies_of_all(redis: &mut MultiplexedConnection) -> anyhow::Result<u32> {
    redis::cmd("SET").arg(format!("{LESSON_KEY_PREFIX}last")).arg(1).exec_async(redis).await?;
    Ok(redis::cmd("WAIT").arg(1).arg(WAIT_MS).query_async(redis).await?)
}

async fn wait_until_copied(redis: &mut MultiplexedConnection) -> anyhow::Result<u32> {
    poll("a replica has every write", async || {
        Ok(Some(copies_of_all(redis).await?).filter(|copies| *copies > 0))
    })
    .await
}

async fn is_locked(redis: &mut MultiplexedConnection) -> anyhow::Result<bool> {
    let key = format!("{LESSON_KEY_PREFIX}lock:{{sku:tea}}");
    Ok(redis::cmd("EXISTS").arg(key).query_async(redis).await?)
}
