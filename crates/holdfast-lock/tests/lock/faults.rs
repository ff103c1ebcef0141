//! Redis is flushed, paused or restarted: the lock is blocked for one lease at most, and fences
//! grow.

use std::time::{Duration, Instant};

use futures_util::future::join;
use holdfast_lock::{AcquireOutcome, Error, LockKey, Redis, Released, Wait};
use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::task::{spawn_blocking, yield_now};

use crate::server::{
    Process, Server, TTL, each_topology, enqueue, fence, ping, run, until, until_holder_listens,
    until_notified_of_waiter,
};
use crate::topology::Topology;

each_topology!(
    flushed_scripts_are_reloaded,
    refence_raises_fences_after_flush,
    waiter_gets_lock_after_flush,
    grant_from_before_a_flush_is_confirmed,
    service_resumes_after_restart_without_data,
    redis_pause_beyond_lease_loses_only_lock,
    stalled_redis_leaves_no_orphaned_lock,
    outage_costs_one_timeout,
    stopped_process_reads_its_responses,
);

async fn flushed_scripts_are_reloaded(server: &Server) {
    let process = server.process();
    let first = process.lock("{a}").await;
    let _: String = server.query("SCRIPT FLUSH");
    assert_eq!(first.release().await, Released::Held);
    let held = process.lock("{a}").await;
    until_holder_listens(server, "{a}").await;
    let waiter = enqueue(server, &server.process(), "{a}").await;
    until_notified_of_waiter(&held, "{a}").await;
    let _: String = server.query("SCRIPT FLUSH");
    assert_eq!(held.release().await, Released::Held);
    waiter.await.unwrap().release().await;
}

async fn refence_raises_fences_after_flush(server: &Server) {
    let (process, there) = (server.process(), server.process());
    let key = LockKey::new("{a}").unwrap();
    process.lock("{a}").await.release().await;
    let _: String = server.query("FLUSHALL");
    let mut held = process.lock("{a}").await;
    assert_eq!(fence(&held, "{a}"), 1, "Redis has forgotten");
    assert!(!there.is_free("{a}").await);
    assert_eq!(held.raise_fence(&key, 5_000).await.unwrap(), Some(5_001));
    assert_eq!(fence(&held, "{a}"), 5_001);
    // Only ever raised.
    assert!(held.raise_fence(&key, 7).await.unwrap().unwrap() > 5_001);
    held.release().await;
    let next = there.lock("{a}").await;
    assert!(fence(&next, "{a}") > 5_064);
    next.release().await;
}

#[test]
fn evicted_lock_is_lost_and_its_fence_is_raised() {
    run(Topology::Redis, async |server| evicted_lock(server).await);
}

/// A Redis that may evict deletes a lock that is held, and the counter of its fences.
async fn evicted_lock(server: &Server) {
    server.mark_as_changed();
    let (process, there) = (server.process(), server.process());
    let held = process.lock("{a}").await;
    let guard = held.get(&LockKey::new("{a}").unwrap()).unwrap().as_fenced().unwrap();
    there.lock("{b}").await.release().await;
    let row_fence = fence(&held, "{a}") + 1_000;

    // The memory is full: the next write evicts all keys, and is refused.
    server.execute_on_all("CONFIG SET maxmemory-policy allkeys-random");
    server.execute_on_all("CONFIG SET maxmemory 1");
    until("everything is evicted", async || {
        let _: Result<(), _> = there.try_acquire(&["{c}"], Wait::Try, TTL).await.map(drop);
        server.keys().is_empty()
    })
    .await;
    guard.wait_until_lost().await;
    server.execute_on_all("CONFIG SET maxmemory 0");
    assert_eq!(held.release().await, Released::Lost);

    let key = LockKey::new("{a}").unwrap();
    let mut next = there.lock("{a}").await;
    assert!(fence(&next, "{a}") < row_fence, "the counter was evicted");
    assert_eq!(next.raise_fence(&key, row_fence).await.unwrap(), Some(row_fence + 1));
    next.release().await;
}

async fn waiter_gets_lock_after_flush(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    let waiter = enqueue(server, &there, "{a}").await;
    assert!(!waiter.is_finished());
    let _: String = server.query("FLUSHALL");
    let theirs = waiter.await.unwrap();
    assert_eq!(
        held.release().await,
        Released::Lost,
        "the first holder notices it now at the latest"
    );
    assert!(!here.is_free("{a}").await, "a late release does not release the next lock");
    assert_eq!(theirs.release().await, Released::Held);
}

async fn grant_from_before_a_flush_is_confirmed(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    let waiter = enqueue(server, &there, "{a}").await;
    let owner = server.query::<Vec<String>>("ZRANGE holdfast:lock:{a}:queue 0 0").remove(0);
    // As after a flush: another holder with a low fence, and no queue.
    send(&here, &["SET", "holdfast:lock:{a}", "other.1 1@1"]).await;
    let _: i64 = server.query("DEL holdfast:lock:{a}:queue holdfast:lock:{a}:seen");
    poll_is_recorded(server, &owner).await;
    // A message about a grant from before the flush arrives late.
    let channel = format!("holdfast:process:{}", owner.split_once('.').unwrap().0);
    let message = format!("granted {owner} 6401 0 holdfast:lock:{{a}}");
    send(&here, &["PUBLISH", &channel, &message]).await;
    poll_is_recorded(server, &owner).await;
    assert!(!waiter.is_finished(), "two processes hold the lock");
    let _: i64 = server.query("DEL holdfast:lock:{a}");
    let theirs = waiter.await.unwrap();
    assert!(fence(&theirs, "{a}") < 6_401);
    assert_eq!(theirs.release().await, Released::Held);
    assert_eq!(held.release().await, Released::Lost);
}

async fn send(process: &Process, arguments: &[&str]) {
    let mut command = ::redis::cmd(arguments[0]);
    command.arg(&arguments[1..]);
    let _: ::redis::Value = process.0.redis().query(command).await.unwrap();
}

/// Returns once Redis has recorded another poll of this owner.
async fn poll_is_recorded(server: &Server, owner: &str) {
    let seen = || server.query::<Option<f64>>(&format!("ZSCORE holdfast:lock:{{a}}:seen {owner}"));
    let before = seen();
    until("the waiter polls", async || seen().is_some_and(|now| before != Some(now))).await;
}

async fn service_resumes_after_restart_without_data(server: &mut Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    assert!(!there.is_free("{a}").await);
    server.restart_empty();
    until("the other process acquires it", async || {
        there
            .try_acquire(&["{a}"], Wait::Notify, Duration::from_secs(2))
            .await
            .is_ok_and(|outcome| matches!(outcome, AcquireOutcome::Acquired(_)))
    })
    .await;
    assert_ne!(held.release().await, Released::Held);
    let held = here.lock("{a}").await;
    assert!(!there.is_free("{a}").await, "the lock excludes as before");
    assert_eq!(held.release().await, Released::Held);
}

async fn redis_pause_beyond_lease_loses_only_lock(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let key = LockKey::new("{a}").unwrap();
    let held = here.lock("{a}").await;
    assert!(!there.is_free("{a}").await);
    let guard = held.get(&key).unwrap().as_fenced().unwrap();
    let pause = TTL + Duration::from_millis(400);
    server.pause(pause);
    let paused = Instant::now();
    // By its own clock, without a message from Redis. Both run by the same timer, so a busy machine
    // delays both.
    let lost = tokio::time::timeout_at((paused + TTL).into(), guard.wait_until_lost()).await;
    assert!(lost.is_ok(), "it is held for longer than its lease");
    // In a Cluster, a `PING` would go to any node.
    for process in [&here, &there] {
        until("the key's node responds again", async || process.0.holder(&key).await.is_ok()).await;
    }
    let theirs = there.lock("{a}").await;
    assert_ne!(held.release().await, Released::Held);
    assert!(!here.is_free("{a}").await, "a late release does not release the next lock");
    assert_eq!(theirs.release().await, Released::Held);
}

/// A stalled Redis later executes what was sent to it, including acquisitions of callers that have
/// given up. What they acquire is released at once, not when their lease ends.
async fn stalled_redis_leaves_no_orphaned_lock(server: &Server) {
    let (here, there) = (server.process_with_long_times(), server.process_with_long_times());
    here.lock("{a}").await.release().await;
    server.signal(Signal::STOP);
    // The first caller's release is sent when it gives up. When the last one gives up, that release
    // has timed out.
    let stopped = Instant::now();
    until("Redis is silent for longer than three timeouts", async || {
        let result = here.try_acquire(&["{a}"], Wait::Notify, Duration::from_secs(5)).await;
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
        stopped.elapsed() > Duration::from_millis(2_400)
    })
    .await;
    server.signal(Signal::CONT);
    // Less than a lease of 30 s.
    until("the lock is free", async || {
        let result = there.try_acquire(&["{a}"], Wait::Notify, Duration::from_secs(9)).await;
        matches!(result, Ok(AcquireOutcome::Acquired(_)))
    })
    .await;
}

/// One caller waits for the timeout, and later ones do not. Their releases are sent nevertheless.
/// (In a Cluster each node has its own timeout.)
async fn outage_costs_one_timeout(server: &Server) {
    if server.primaries() > 1 {
        return;
    }
    let (here, there) = (server.process_with_long_times(), server.process_with_long_times());
    let held = here.lock("{a}").await;
    server.signal(Signal::STOP);
    let result = here.try_acquire(&["{b}"], Wait::Notify, Duration::from_secs(5)).await;
    assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    let behind = async {
        let result = here.try_acquire(&["{c}"], Wait::Notify, Duration::from_secs(5)).await;
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
        assert_eq!(held.release().await, Released::Unknown);
    };
    let first = Redis::open(server.url()).unwrap();
    tokio::select! {
        biased;
        () = behind => {}
        _ = ping(&first) => panic!("they took as long as a timeout"),
    }
    server.signal(Signal::CONT);
    // Less than a lease of 30 s.
    until("the lock is free", async || {
        let result = there.try_acquire(&["{a}"], Wait::Notify, Duration::from_secs(9)).await;
        matches!(result, Ok(AcquireOutcome::Acquired(_)))
    })
    .await;
}

/// A process is stopped until after the timeout. Responses that arrived in that time do not count
/// as an outage.
async fn stopped_process_reads_its_responses(server: &Server) {
    let url = server.url().to_owned();
    let process = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let redis = Redis::open(&url).unwrap();
            ping(&redis).await.unwrap();
            // Shortly, and long, after the timeout of 0.8 s.
            for (count, stopped_ms) in [(1, 850), (2, 1_000), (3, 2_000)] {
                let increment = redis.query::<i64>(::redis::cmd("INCR").arg("{a}").to_owned());
                let stop = async {
                    yield_now().await;
                    #[expect(clippy::disallowed_methods, reason = "stops the only thread")]
                    std::thread::sleep(Duration::from_millis(stopped_ms));
                };
                assert_eq!(join(increment, stop).await.0.unwrap(), count);
            }
        });
    };
    spawn_blocking(process).await.unwrap();
}
