//! Redis is flushed, paused, restarted: the lock is blocked for one lease at most, and fences grow.

use std::time::{Duration, Instant};

use futures_util::future::join;
use holdfast_lock::{AcquireOutcome, Error, LockKey, Redis, Released, Wait};
use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::task::{spawn_blocking, yield_now};

use crate::server::{Process, Server, TTL, everywhere, fence, in_line, ping, until, wanted};

everywhere!(
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
    let first = process.take("{a}").await;
    let _: String = server.ask("SCRIPT FLUSH");
    assert_eq!(first.release().await, Released::Held);
    let held = process.take("{a}").await;
    let waiter = in_line(server, &server.process(), "{a}").await;
    wanted(&held, "{a}").await;
    let _: String = server.ask("SCRIPT FLUSH");
    assert_eq!(held.release().await, Released::Held);
    waiter.await.unwrap().release().await;
}

async fn refence_raises_fences_after_flush(server: &Server) {
    let (process, there) = (server.process(), server.process());
    let key = LockKey::new("{a}").unwrap();
    process.take("{a}").await.release().await;
    let _: String = server.ask("FLUSHALL");
    let mut held = process.take("{a}").await;
    assert_eq!(fence(&held, "{a}"), 1, "Redis has forgotten");
    assert!(!there.finds_it_free("{a}").await);
    assert_eq!(held.raise_fence(&key, 5_000).await.unwrap(), Some(5_001));
    assert_eq!(fence(&held, "{a}"), 5_001);
    // Only ever raised.
    assert!(held.raise_fence(&key, 7).await.unwrap().unwrap() > 5_001);
    held.release().await;
    let next = there.take("{a}").await;
    assert!(fence(&next, "{a}") > 5_064);
    next.release().await;
}

async fn waiter_gets_lock_after_flush(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.take("{a}").await;
    let waiter = in_line(server, &there, "{a}").await;
    assert!(!waiter.is_finished());
    let _: String = server.ask("FLUSHALL");
    let flushed = Instant::now();
    let theirs = waiter.await.unwrap();
    assert!(flushed.elapsed() < Duration::from_secs(1), "{:?}", flushed.elapsed());
    assert_eq!(
        held.release().await,
        Released::Lost,
        "the first holder learns it at the latest now"
    );
    assert!(!here.finds_it_free("{a}").await, "a late release leaves the next lock alone");
    assert_eq!(theirs.release().await, Released::Held);
}

async fn grant_from_before_a_flush_is_confirmed(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.take("{a}").await;
    let waiter = in_line(server, &there, "{a}").await;
    let owner = server.ask::<Vec<String>>("ZRANGE holdfast:lock:{a}:queue 0 0").remove(0);
    // As after a flush: another holder with a low fence, and no queue.
    send(&here, &["SET", "holdfast:lock:{a}", "other.1 1@1"]).await;
    let _: i64 = server.ask("DEL holdfast:lock:{a}:queue holdfast:lock:{a}:seen");
    poll_is_recorded(server, &owner).await;
    // A message about a grant from before the flush arrives late.
    let channel = format!("holdfast:process:{}", owner.split_once('.').unwrap().0);
    let message = format!("granted {owner} 6401 0 holdfast:lock:{{a}}");
    send(&here, &["PUBLISH", &channel, &message]).await;
    poll_is_recorded(server, &owner).await;
    assert!(!waiter.is_finished(), "two processes hold the lock");
    let _: i64 = server.ask("DEL holdfast:lock:{a}");
    let theirs = waiter.await.unwrap();
    assert!(fence(&theirs, "{a}") < 6_401);
    assert_eq!(theirs.release().await, Released::Held);
    assert_eq!(held.release().await, Released::Lost);
}

async fn send(process: &Process, words: &[&str]) {
    let mut command = ::redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: ::redis::Value = process.0.redis().query(command).await.unwrap();
}

/// Returns once Redis has recorded another poll of this owner.
async fn poll_is_recorded(server: &Server, owner: &str) {
    let seen = || server.ask::<Option<f64>>(&format!("ZSCORE holdfast:lock:{{a}}:seen {owner}"));
    let before = seen();
    until("the waiter polls", async || seen().is_some_and(|now| before != Some(now))).await;
}

async fn service_resumes_after_restart_without_data(server: &mut Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.take("{a}").await;
    assert!(!there.finds_it_free("{a}").await);
    server.restart_empty();
    until("the other one gets in", async || {
        there
            .try_ask(&["{a}"], Wait::Notify, Duration::from_secs(2))
            .await
            .is_ok_and(|outcome| matches!(outcome, AcquireOutcome::Acquired(_)))
    })
    .await;
    assert_ne!(held.release().await, Released::Held);
    let held = here.take("{a}").await;
    assert!(!there.finds_it_free("{a}").await, "it excludes as before");
    assert_eq!(held.release().await, Released::Held);
}

async fn redis_pause_beyond_lease_loses_only_lock(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.take("{a}").await;
    assert!(!there.finds_it_free("{a}").await);
    let guard = held.get(&LockKey::new("{a}").unwrap()).unwrap().as_fenced().unwrap();
    let pause = TTL + Duration::from_millis(400);
    server.pause(pause);
    let paused = Instant::now();
    // Judged by its own clock, without any word from Redis. Both run by the same timer: a machine
    // that is busy delays both.
    let lost = tokio::time::timeout_at((paused + TTL).into(), guard.wait_until_lost()).await;
    assert!(lost.is_ok(), "it is held for longer than its lease");
    for process in [&here, &there] {
        until("Redis speaks again", async || ping(process.0.redis()).await.is_ok()).await;
    }
    let theirs = there.take("{a}").await;
    assert_ne!(held.release().await, Released::Held);
    assert!(!here.finds_it_free("{a}").await, "a late release leaves the next lock alone");
    assert_eq!(theirs.release().await, Released::Held);
}

/// A Redis that stalled executes what was sent meanwhile, among it acquisitions of callers that
/// have given up. What they acquire is released at once, not when their lease ends.
async fn stalled_redis_leaves_no_orphaned_lock(server: &Server) {
    let (here, there) = (server.process_without_hurry(), server.process_without_hurry());
    here.take("{a}").await.release().await;
    server.signal(Signal::STOP);
    // The first caller's release is sent when it gives up. When the last one gives up, that release
    // has had no response for as long as it is waited for.
    let stopped = Instant::now();
    until("Redis is silent for longer than three timeouts", async || {
        let asked = here.try_ask(&["{a}"], Wait::Notify, Duration::from_secs(5)).await;
        assert!(matches!(asked, Err(Error::Unavailable(_))), "{asked:?}");
        stopped.elapsed() > Duration::from_millis(2_400)
    })
    .await;
    server.signal(Signal::CONT);
    // Less than a lease of 30 s.
    until("the lock is free", async || {
        let asked = there.try_ask(&["{a}"], Wait::Notify, Duration::from_secs(9)).await;
        matches!(asked, Ok(AcquireOutcome::Acquired(_)))
    })
    .await;
}

/// One caller waits for the timeout, and those behind it do not. Their releases are sent all the
/// same. (In a Cluster each node is waited for.)
async fn outage_costs_one_timeout(server: &Server) {
    if server.primaries() > 1 {
        return;
    }
    let (here, there) = (server.process_without_hurry(), server.process_without_hurry());
    let held = here.take("{a}").await;
    server.signal(Signal::STOP);
    let asked = here.try_ask(&["{b}"], Wait::Notify, Duration::from_secs(5)).await;
    assert!(matches!(asked, Err(Error::Unavailable(_))), "{asked:?}");
    let behind = async {
        let asked = here.try_ask(&["{c}"], Wait::Notify, Duration::from_secs(5)).await;
        assert!(matches!(asked, Err(Error::Unavailable(_))), "{asked:?}");
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
        let asked = there.try_ask(&["{a}"], Wait::Notify, Duration::from_secs(9)).await;
        matches!(asked, Ok(AcquireOutcome::Acquired(_)))
    })
    .await;
}

/// A process does not run until after the timeout. Responses that arrived meanwhile are not taken
/// for an outage.
async fn stopped_process_reads_its_responses(server: &Server) {
    let url = server.url().to_owned();
    let process = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let redis = Redis::open(&url).unwrap();
            ping(&redis).await.unwrap();
            // Until shortly, and until long, after the timeout of 0.8 s.
            for (turn, stopped_ms) in [(1, 850), (2, 1_000), (3, 2_000)] {
                let count = redis.query::<i64>(::redis::cmd("INCR").arg("{a}").to_owned());
                let stop = async {
                    yield_now().await;
                    #[expect(clippy::disallowed_methods, reason = "stops the only thread")]
                    std::thread::sleep(Duration::from_millis(stopped_ms));
                };
                assert_eq!(join(count, stop).await.0.unwrap(), turn);
            }
        });
    };
    spawn_blocking(process).await.unwrap();
}
