//! Lesson `redlock`: five Redis nodes of its own. First the holder is paused for longer than its
//! lease; then two nodes are killed, and a third.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use holdfast_lock::{LockKey, LockKind, Locks, Redis, Released, Wait};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::{
    LESSON_KEY_PREFIX, Lane, LessonResult, Scenario, acquire, connect, happening, lock_client,
    wait_until,
};
use holdfast_base::messages::message;
use holdfast_services::TempRedis;
use holdfast_story::EventKind;

const NODES: usize = 5;
/// Nodes that are killed while a majority is left.
const DOWN: usize = 2;
const SHORT_LEASE: Duration = Duration::from_secs(1);

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.say(message!("run-redlock-step-1"));
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(TempRedis::start().await?);
    }
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
    let locks = quorum(&urls, "B")?;
    let key = LockKey::new("{sku:tea}")?;

    let paused = paused_holder(lab, &urls, &locks, &key).await?;

    for node in &mut nodes[..DOWN] {
        node.kill().await?;
    }
    let with_three = acquire(&locks, LockKind::Quorum, Wait::Retry, &key, None).await?;
    with_three.context("two of five are missing, and the lock is busy")?.release().await;
    lab.say(message!("run-redlock-step-2"));

    nodes[DOWN].kill().await?;
    let with_two = acquire(&locks, LockKind::Quorum, Wait::Try, &key, None).await;
    let refused = with_two.err().map(|error| error.to_string());
    lab.say(message!("run-redlock-step-3"));
    let why = refused.as_deref().unwrap_or("none");
    lab.evidence(message!("run-redlock-fact-1"), why, refused.is_some());
    Ok(LessonResult::new(
        refused.is_some() && paused,
        message!(
            "run-redlock-verdict",
            nodes = NODES,
            down = DOWN,
            more_down = DOWN + 1,
            holders = if paused { 2 } else { 1 }
        ),
    ))
}

fn quorum(urls: &[String], name: &str) -> anyhow::Result<Locks> {
    let nodes: Result<Vec<Redis>, _> = urls.iter().map(|url| Redis::open(url)).collect();
    Ok(lock_client(&urls[0], LESSON_KEY_PREFIX, name)?.with_quorum(nodes?))
}

/// A acquires the lock and is paused until no node has it; B acquires it. Returns whether A's
/// release then reported a lost lock.
async fn paused_holder(
    lab: &Scenario,
    urls: &[String],
    locks: &Locks,
    key: &LockKey,
) -> anyhow::Result<bool> {
    lab.scene("paused-holder");
    let [mut a, mut b] = ["A", "B"].map(|name| lab.actor(name));
    let (taken, is_taken) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let there = urls.to_vec();
    let name = key.clone();

    // A blocked thread stands for a paused process: nothing else runs on its runtime.
    let holder = spawn_blocking(move || -> anyhow::Result<(Released, Lane)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let locks = quorum(&there, "A")?;
            a.happens(EventKind::Wait);
            let guards =
                acquire(&locks, LockKind::Quorum, Wait::Retry, &name, Some(SHORT_LEASE)).await?;
            let guards = guards.context("the lock is busy")?;
            a.happens(EventKind::Held);
            let _ = taken.send(());
            a.happens(EventKind::Paused);
            let _ = may_go_on.recv();
            a.happens(EventKind::Resumed);

            let released = guards.release().await;
            let is_held = released == Released::Held;
            a.happens(if is_held { EventKind::Release } else { EventKind::Lost });
            Ok((released, a))
        })
    });

    is_taken.await.context("A did not get the lock")?;
    lab.say(message!("run-redlock-step-4"));
    wait_until_expired(urls).await?;
    let lease_ms = i64::try_from(SHORT_LEASE.as_millis())?;
    let expired = happening(EventKind::Expired).with_number(Some(lease_ms));

    b.happens(EventKind::Wait);
    let second = acquire(locks, LockKind::Quorum, Wait::Retry, key, None).await?;
    let second = second.context("B does not get the lock")?;
    b.happens(EventKind::Held);
    lab.say(message!("run-redlock-step-5"));

    drop(go_on);
    let (released, mut a) = holder.await??;
    second.release().await;
    b.happens(EventKind::Release);
    a.events.push(expired);
    a.events.sort_by_key(|event| event.at_us);
    lab.record_lane(a);
    lab.record_lane(b);
    lab.say(message!("run-redlock-step-6"));
    Ok(released != Released::Held)
}

async fn wait_until_expired(urls: &[String]) -> anyhow::Result<()> {
    let key = format!("{LESSON_KEY_PREFIX}lock:{{sku:tea}}");
    for url in urls {
        let mut node = connect(url).await?;
        wait_until("the lease ends", async || {
            // Reading the key makes a node check its expiry.
            let value: Option<String> = redis::cmd("GET").arg(&key).query_async(&mut node).await?;
            Ok(value.is_none())
        })
        .await?;
    }
    Ok(())
}
