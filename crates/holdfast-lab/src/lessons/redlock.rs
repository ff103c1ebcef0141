//! Lesson `redlock`: five Redis nodes of its own. First the holder is paused for longer than its
//! lease; then two nodes are killed, and a third.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use holdfast_lock::{LockKey, LockKind, Locks, Redis, Released, Wait};
use sqlx::PgConnection;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use super::fence::{create_shelf, read};
use super::{
    LESSON_KEY_PREFIX, Lane, LessonResult, Scenario, acquire, connect, lock_client, poll,
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

    let (holders, granted, left) = paused_holder(lab, &urls, &locks, &key).await?;
    // First what the picture shows, and the question asks.
    lab.evidence(message!("run-redlock-fact-2"), holders, holders == 2);
    let is_refused = nodes_down(lab, &mut nodes, &locks, &key).await?;

    let sales = message!("run-sales", sold = 2, reduced = left);
    let verdict = message!("run-redlock-verdict", granted, nodes = NODES, sales);
    let is_broken = holders == 2 && granted == NODES && left == 1;
    Ok(LessonResult::of_scenes(is_broken && is_refused, verdict))
}

fn quorum(urls: &[String], name: &str) -> anyhow::Result<Locks> {
    let nodes: Result<Vec<Redis>, _> = urls.iter().map(|url| Redis::open(url)).collect();
    Ok(lock_client(&urls[0], LESSON_KEY_PREFIX, name)?.with_quorum(nodes?))
}

/// A acquires the lock, reads and is paused until no node has it; B acquires it and reads, and both
/// sell a unit. Returns how many were holders at once, on how many nodes B was it, and how many
/// units left the shelf.
async fn paused_holder(
    lab: &Scenario,
    urls: &[String],
    locks: &Locks,
    key: &LockKey,
) -> anyhow::Result<(usize, usize, i64)> {
    lab.scene("paused-holder");
    let [mut a, mut b] = ["A", "B"].map(|name| lab.actor(name));
    let mut tx = lab.cluster.pool.begin().await.map_err(|(_, error)| error)?;
    create_shelf(&mut tx).await?;

    a.happens(EventKind::Wait);
    let (of_a, go_on) = hold_and_pause(urls.to_vec(), key.clone()).await?;
    a.happens(EventKind::Held);
    note_grants(urls, "A", NODES - DOWN, &mut a).await?;
    read_shelf(&mut tx, &mut a).await?;
    a.happens(EventKind::Paused);
    lab.say(message!("run-redlock-step-4"));

    wait_until_expired(urls).await?;
    let lease_ms = i64::try_from(SHORT_LEASE.as_millis())?;
    a.happens_with(EventKind::Expired, Some(lease_ms), None);

    b.happens(EventKind::Wait);
    let second = acquire(locks, LockKind::Quorum, Wait::Retry, key, None).await?;
    let second = second.context("B does not get the lock")?;
    b.happens(EventKind::Held);
    let granted = note_grants(urls, "B", NODES, &mut b).await?;
    read_shelf(&mut tx, &mut b).await?;
    lab.say(message!("run-redlock-step-5"));

    a.happens(EventKind::Resumed);
    write_shelf(&mut tx, &mut a).await?;
    drop(go_on);
    let is_lost = of_a.await?? != Released::Held;
    a.happens(if is_lost { EventKind::Lost } else { EventKind::Release });
    lab.say(message!("run-redlock-step-6"));

    write_shelf(&mut tx, &mut b).await?;
    let is_kept = second.release().await == Released::Held;
    b.happens(EventKind::Release);
    let (stock, _) = read(&mut tx).await?;
    tx.rollback().await?;
    lab.record_lane(a);
    lab.record_lane(b);
    Ok((1 + usize::from(is_lost && is_kept), granted, 10 - stock))
}

/// Acquires the lock for A, in a thread that does nothing more until it may go on: a blocked thread
/// stands for a paused process, as nothing else runs on its runtime. Returns what A's release
/// reports then; A goes on when the sender is dropped.
async fn hold_and_pause(
    urls: Vec<String>,
    key: LockKey,
) -> anyhow::Result<(JoinHandle<anyhow::Result<Released>>, mpsc::Sender<()>)> {
    let (taken, is_taken) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let holder = spawn_blocking(move || -> anyhow::Result<Released> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let locks = quorum(&urls, "A")?;
            let lease = Some(SHORT_LEASE);
            let guards = acquire(&locks, LockKind::Quorum, Wait::Retry, &key, lease).await?;
            let guards = guards.context("the lock is busy")?;
            let _ = taken.send(());
            let _ = may_go_on.recv();
            Ok(guards.release().await)
        })
    });
    is_taken.await.context("A did not get the lock")?;
    Ok((holder, go_on))
}

/// Adds to a lane which nodes have granted it the lock, as soon as those are at least `least`: the
/// lock is acquired with a majority, and the rest may answer later. Returns their number.
async fn note_grants(
    urls: &[String],
    owner: &str,
    least: usize,
    lane: &mut Lane,
) -> anyhow::Result<usize> {
    let owner = format!("{owner}~");
    let nodes = poll("the nodes have granted the lock", async || {
        let mut nodes = Vec::new();
        for (url, node) in urls.iter().zip(1..) {
            // Some are down.
            let Ok(mut there) = connect(url).await else { continue };
            let value: Option<String> =
                redis::cmd("GET").arg(node_key()).query_async(&mut there).await?;
            nodes.extend(value.filter(|value| value.starts_with(&owner)).map(|_| node));
        }
        Ok((nodes.len() >= least).then_some(nodes))
    })
    .await?;

    for node in &nodes {
        lane.happens_with(EventKind::Granted, Some(*node), None);
    }
    Ok(nodes.len())
}

fn node_key() -> String {
    format!("{LESSON_KEY_PREFIX}lock:{{sku:tea}}")
}

async fn read_shelf(tx: &mut PgConnection, lane: &mut Lane) -> anyhow::Result<()> {
    let (stock, _) = read(tx).await?;
    lane.happens_with(EventKind::Read, Some(stock), None);
    Ok(())
}

/// Sells the unit that a lane has read.
async fn write_shelf(tx: &mut PgConnection, lane: &mut Lane) -> anyhow::Result<()> {
    let read = lane.events.iter().rev().find(|event| event.kind == EventKind::Read);
    let stock = read.and_then(|event| event.number()).context("it has read nothing")? - 1;
    sqlx::query("update shelf set stock = $1").bind(stock).execute(tx).await?;
    lane.happens_with(EventKind::Write, Some(stock), None);
    Ok(())
}

/// Kills two nodes, with which the lock is granted, and a third. Returns whether the lock is then
/// refused.
async fn nodes_down(
    lab: &Scenario,
    nodes: &mut [TempRedis],
    locks: &Locks,
    key: &LockKey,
) -> anyhow::Result<bool> {
    lab.scene("nodes-down");
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
    let mut b = lab.actor("B");
    let mut down = lab.actor(message!("run-label-nodes"));
    for node in &mut nodes[..DOWN] {
        node.kill().await?;
        down.happens(EventKind::Killed);
    }

    b.happens(EventKind::Wait);
    let with_three = acquire(locks, LockKind::Quorum, Wait::Retry, key, None).await?;
    let with_three = with_three.context("two of five are missing, and the lock is busy")?;
    b.happens(EventKind::Held);
    let granted = note_grants(&urls, "B", NODES - DOWN, &mut b).await?;
    with_three.release().await;
    b.happens(EventKind::Release);
    lab.say(message!("run-redlock-step-2"));

    nodes[DOWN].kill().await?;
    down.happens(EventKind::Killed);
    b.happens(EventKind::Wait);
    let refused = acquire(locks, LockKind::Quorum, Wait::Try, key, None).await.err();
    b.happens(if refused.is_some() { EventKind::Busy } else { EventKind::Held });
    lab.record_lane(b);
    lab.record_lane(down);

    let is_refused = refused.is_some();
    let why = refused.map(|error| error.to_string()).unwrap_or_default();
    lab.evidence(message!("run-redlock-fact-1"), why, is_refused);
    let sentence = message!(
        "run-redlock-scene-nodes-down",
        nodes = NODES,
        down = DOWN,
        granted,
        more_down = DOWN + 1
    );
    lab.conclude(is_refused && granted == NODES - DOWN, sentence);
    Ok(is_refused)
}

async fn wait_until_expired(urls: &[String]) -> anyhow::Result<()> {
    for url in urls {
        let mut node = connect(url).await?;
        wait_until("the lease ends", async || {
            // Reading the key makes a node check its expiry.
            let value: Option<String> =
                redis::cmd("GET").arg(node_key()).query_async(&mut node).await?;
            Ok(value.is_none())
        })
        .await?;
    }
    Ok(())
}
