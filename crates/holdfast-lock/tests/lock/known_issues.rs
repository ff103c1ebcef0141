//! Known issues of other lock libraries, as tests.

use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use holdfast_lock::fenced::Timing;
use holdfast_lock::{AcquireOutcome, LockKey, Released, Wait};

use crate::cut::Cut;
use crate::server::{LONG_TTL, Process, Server, TTL, each_topology, enqueue, fence, until};

each_topology!(
    holder_learns_of_a_lost_lock,
    released_lock_is_not_renewed,
    lost_notification_costs_one_poll,
    dead_waiter_is_skipped_within_seconds,
    cancelled_acquire_leaves_nothing_locked,
    cancelled_release_is_completed,
    newcomers_do_not_overtake_waiters,
    redis_outage_is_neither_busy_nor_free,
    silent_redis_is_not_a_busy_lock,
    every_key_has_an_expiry,
    renewal_without_reply_keeps_the_lock,
    expired_lock_release_leaves_next_holder,
);

/// Redisson #4698: *no way for an application to know that the renewal failed.*
async fn holder_learns_of_a_lost_lock(server: &Server) {
    let ttl = TTL * 6;
    let held = server.process_with_timing(Timing::default().with_ttl(ttl)).lock("{a}").await;
    let guard = held.get(&LockKey::new("{a}").unwrap()).unwrap().as_fenced().unwrap();
    assert!(guard.is_held());
    let _: i64 = server.query("DEL holdfast:lock:{a}");
    let started = Instant::now();
    guard.wait_until_lost().await;
    // At a renewal, before the lease is over.
    assert!(started.elapsed() < ttl, "{:?}", started.elapsed());
    assert!(!guard.is_held());
    assert_eq!(held.release().await, Released::Lost);
}

/// Redisson #7272: *the watchdog outlives the unlock, and the key is renewed for ever.*
async fn released_lock_is_not_renewed(server: &Server) {
    let process = server.process();
    let held = process.lock("{a}").await;
    let before = script_calls(server);
    // A renewal is due after a third of the lease.
    until("a lease that is held is renewed", async || script_calls(server) > before).await;
    held.release().await;
    for _ in 0..20 {
        process.lock("{a}").await.release().await;
    }
    assert_eq!(server.keys_left(), Vec::<String>::new());
    let before = script_calls(server);
    let started = Instant::now();
    until("a lease has passed", async || started.elapsed() > TTL).await;
    assert_eq!(script_calls(server), before);
}

/// The number of scripts that the server of `{a}` has run.
fn script_calls(server: &Server) -> u64 {
    let stats: String = server.query("INFO commandstats");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.and_then(|line| line.split(',').next()).expect("scripts have run").parse().unwrap()
}

fn with_long_lease(server: &Server) -> Process {
    server.process_with_timing(Timing::default().with_ttl(LONG_TTL).with_grant_ttl(LONG_TTL))
}

/// Redisson #1763, #6540: *a missed unlock message, and the waiter sleeps to the end of the lease.*
async fn lost_notification_costs_one_poll(server: &Server) {
    let (here, there) = (with_long_lease(server), with_long_lease(server));
    let held = here.lock("{a}").await;
    let waiter = enqueue(server, &there, "{a}").await;
    let _: i64 = server.query("CLIENT KILL TYPE pubsub");
    let released = Instant::now();
    held.release().await;
    waiter.await.unwrap().release().await;
    assert!(released.elapsed() < LONG_TTL / 2, "{:?}", released.elapsed());
}

/// Redisson #2099, #2883: *a fair lock's queue is stuck behind a dead waiter.*
async fn dead_waiter_is_skipped_within_seconds(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    // A waiter of a dead process is first in the queue.
    let now: (u64, u64) = server.query("TIME");
    let _: i64 = server.query("ZADD holdfast:lock:{a}:queue 1 dead.0");
    let _: i64 =
        server.query(&format!("ZADD holdfast:lock:{{a}}:seen {}{:03} dead.0", now.0, now.1 / 1000));
    let waiter = enqueue(server, &there, "{a}").await;
    let released = Instant::now();
    held.release().await;
    waiter.await.unwrap().release().await;
    // A second after it was seen.
    assert!(released.elapsed() < LONG_TTL / 2, "{:?}", released.elapsed());
}

/// redis-py #3847, gears-rust #4705: *cancelled at the wrong moment, the lock stays.*
async fn cancelled_acquire_leaves_nothing_locked(server: &Server) {
    let (process, there) = (with_long_lease(server), server.process());
    for cut in Cut::all() {
        let taken = cut.run(&AtomicUsize::new(0), process.lock("{a}")).await;
        let complete = taken.is_some();
        if let Some(guards) = taken {
            assert!(!there.is_free("{a}").await, "a lock that is held is not free");
            guards.release().await;
        }
        let started = Instant::now();
        until("it is free again", async || there.is_free("{a}").await).await;
        assert!(started.elapsed() < LONG_TTL / 2, "{cut:?}: it expired");
        if complete {
            break;
        }
    }
    until("no key is left", async || server.keys_left().is_empty()).await;
}

/// blnk #354: *the unlock ran on the cancelled request, and the balance stayed locked.*
async fn cancelled_release_is_completed(server: &Server) {
    let (process, there) = (with_long_lease(server), server.process());
    let held = process.lock("{a}").await;
    assert!(!there.is_free("{a}").await);
    let mut releasing = Box::pin(held.release());
    // May complete at once: another thread may reply while it is polled.
    let _ = futures_util::poll!(&mut releasing);
    drop(releasing);
    let started = Instant::now();
    there.lock("{a}").await.release().await;
    assert!(started.elapsed() < LONG_TTL / 2, "it expired: {:?}", started.elapsed());
}

/// python-redis-lock #58: *a newcomer overtakes the waiters.*
async fn newcomers_do_not_overtake_waiters(server: &Server) {
    let (here, there, later) = (server.process(), server.process(), server.process());
    let held = here.lock("{a}").await;
    let waiter = enqueue(server, &there, "{a}").await;
    let second_waiter = enqueue(server, &later, "{a}").await;
    held.release().await;
    let first = waiter.await.unwrap();
    let earlier = fence(&first, "{a}");
    assert!(!second_waiter.is_finished());
    first.release().await;
    assert!(fence(&second_waiter.await.unwrap(), "{a}") > earlier);
}

/// Truxify #6023, redsync PR #32: *taken and Redis is down look the same, and the lock fails open.*
async fn redis_outage_is_neither_busy_nor_free(server: &mut Server) {
    let process = server.process();
    process.lock("{a}").await.release().await;
    server.kill();
    for wait in [Wait::Try, Wait::Notify] {
        let started = Instant::now();
        let result = process.try_acquire(&["{a}"], wait, LONG_TTL).await;
        assert!(matches!(result, Err(holdfast_lock::Error::Unavailable(_))), "{result:?}");
        assert!(started.elapsed() < LONG_TTL / 2, "{:?}", started.elapsed());
    }
}

/// The same for callers whose deadline passes before the timeout of Redis.
async fn silent_redis_is_not_a_busy_lock(server: &mut Server) {
    use rustix::process::Signal;

    let process = server.process();
    process.lock("{a}").await.release().await;
    server.signal(Signal::STOP);
    for wait in [Wait::Try, Wait::Notify] {
        let result = process.try_acquire(&["{a}"], wait, Duration::from_millis(100)).await;
        assert!(matches!(result, Err(holdfast_lock::Error::Unavailable(_))), "{result:?}");
    }
}

/// Redisson #6510: *a third of all keys in production are fences that never expire.*
async fn every_key_has_an_expiry(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    let waiter = enqueue(server, &there, "{a}").await;
    for key in server.keys() {
        let ttl_ms: i64 = server.query(&format!("PTTL {key}"));
        assert!(ttl_ms > 0, "{key} never expires");
    }
    held.release().await;
    waiter.await.unwrap().release().await;
}

/// rslock: *a failed extension unlocks what is still held.*
async fn renewal_without_reply_keeps_the_lock(server: &Server) {
    use rustix::process::Signal;

    let process = server.process();
    let held = process.lock("{a}").await;
    let guard = held.get(&LockKey::new("{a}").unwrap()).unwrap().as_fenced().unwrap();
    // Redis does not respond for the time of a renewal, and responds again before the lease ends.
    server.signal(Signal::STOP);
    let stopped = Instant::now();
    until("a renewal was due", async || stopped.elapsed() > TTL / 2).await;
    server.signal(Signal::CONT);
    until("it is renewed", async || {
        let left: i64 = server.query("PTTL holdfast:lock:{a}");
        u128::try_from(left).is_ok_and(|left| left > TTL.as_millis() * 2 / 3)
    })
    .await;
    assert!(guard.is_held());
    assert_eq!(held.release().await, Released::Held);
}

/// redis-semaphore #24, etcd's locks: *a holder that was away comes back and still believes.*
async fn expired_lock_release_leaves_next_holder(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    let _: i64 = server.query("DEL holdfast:lock:{a}");
    let theirs = there.lock("{a}").await;
    assert_eq!(held.release().await, Released::Lost);
    assert!(matches!(here.acquire("{a}", Wait::Try, TTL).await, AcquireOutcome::Busy(_)));
    assert_eq!(theirs.release().await, Released::Held);
}
