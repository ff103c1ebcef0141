//! How a lock is acquired, waited for and released.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_lock::{AcquireOutcome, LockKey, Released, Wait};

use crate::server::{
    LONG_TTL, Process, Server, TTL, each_topology, enqueue, fence, until, until_holder_listens,
    until_notified_of_waiter,
};

each_topology!(
    held_lock_is_busy_and_names_holder,
    dropped_guard_is_released,
    renewed_lock_outlives_its_lease,
    renewal_keeps_the_fence_counter,
    several_keys_are_acquired_atomically,
    waiters_are_served_in_order,
    local_handoffs_to_waiters_are_bounded,
    local_handoff_time_is_bounded,
    ticket_or_poll_keeps_waiter_alive,
    requeued_waiter_leaves_no_key_without_expiry,
);

const SHORT_TIMEOUT: Duration = Duration::from_millis(150);

async fn held_lock_is_busy_and_names_holder(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    for process in [&here, &there] {
        let AcquireOutcome::Busy(holder) = process.acquire("{a}", Wait::Try, SHORT_TIMEOUT).await
        else {
            panic!("it is held")
        };
        assert!(holder.since_ms.unwrap() > 1_700_000_000_000);
        assert!(holder.remaining.unwrap() <= TTL);
        assert!(holder.fence.unwrap() <= fence(&held, "{a}"));
        let AcquireOutcome::TimedOut { waited, holder } =
            process.acquire("{a}", Wait::Notify, SHORT_TIMEOUT).await
        else {
            panic!("it is still held")
        };
        assert!(waited >= SHORT_TIMEOUT && holder.fence.is_some());
    }
    assert_eq!(held.release().await, Released::Held);
    // A wait that timed out leaves the queue in the background, and may still be handed the lock.
    until("the lock is free", async || there.is_free("{a}").await).await;
    until("no key is left", async || server.keys_left().is_empty()).await;
}

async fn dropped_guard_is_released(server: &Server) {
    let (here, there) = (server.process_with_long_times(), server.process());
    let held = here.lock("{a}").await;
    assert!(!there.is_free("{a}").await);
    drop(held);
    let started = Instant::now();
    there.lock("{a}").await.release().await;
    assert!(started.elapsed() < LONG_TTL / 2, "it expired: {:?}", started.elapsed());
}

async fn renewed_lock_outlives_its_lease(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{a}").await;
    let started = Instant::now();
    until("three leases have passed", async || {
        assert!(!there.is_free("{a}").await);
        started.elapsed() > TTL * 3
    })
    .await;
    assert_eq!(held.release().await, Released::Held);
}

async fn renewal_keeps_the_fence_counter(server: &Server) {
    let held = server.process().lock("{a}").await;
    let _: i64 = server.query("PEXPIRE holdfast:lock:{a}:fence 60000");
    until("the counter expires in a day again", async || {
        server.query::<i64>("PTTL holdfast:lock:{a}:fence") > 80_000_000
    })
    .await;
    assert_eq!(held.release().await, Released::Held);
}

async fn several_keys_are_acquired_atomically(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("{b}").await;
    let keys = ["{c}", "{a}", "{b}", "{a}"];
    let result = there.try_acquire(&keys, Wait::Try, SHORT_TIMEOUT).await.unwrap();
    assert!(matches!(result, AcquireOutcome::Busy(_)));
    assert!(here.is_free("{a}").await && here.is_free("{c}").await);
    held.release().await;
    let AcquireOutcome::Acquired(all) = there.try_acquire(&keys, Wait::Notify, TTL).await.unwrap()
    else {
        panic!("they are free")
    };
    for key in ["{a}", "{b}", "{c}"] {
        assert!(all.get(&LockKey::new(key).unwrap()).is_some());
        assert!(!here.is_free(key).await);
    }
    assert_eq!(all.release().await, Released::Held);
}

async fn waiters_are_served_in_order(server: &Server) {
    let here = server.process();
    let held = here.lock("{a}").await;
    let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5 {
        let mut waiting = Box::pin({
            let (here, sender) = (here.clone(), sender.clone());
            async move {
                let guards = here.lock("{a}").await;
                sender.send(number).unwrap();
                guards.release().await;
            }
        });
        // Polled once, it is queued.
        assert!(futures_util::poll!(&mut waiting).is_pending());
        tokio::spawn(waiting);
    }
    // Otherwise a waiter that fails would be waited for without end.
    drop(sender);
    held.release().await;
    for number in 0..5 {
        assert_eq!(served.recv().await, Some(number));
    }
}

async fn local_handoffs_to_waiters_are_bounded(server: &Server) {
    let here = server.process_with_handoff_period(Duration::from_secs(60));
    assert_eq!(handoffs_before_others(server, &here).await, 8);
}

async fn local_handoff_time_is_bounded(server: &Server) {
    let here = server.process_with_handoff_period(Duration::ZERO);
    assert_eq!(handoffs_before_others(server, &here).await, 0);
}

/// The number of handoffs within `here` while another process waits for the lock.
async fn handoffs_before_others(server: &Server, here: &Process) -> usize {
    let there = server.process();
    let held = here.lock("{a}").await;
    let served = Arc::new(AtomicUsize::new(0));
    // Ten local waiters are queued before the other process waits.
    let mut ours = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let mut waiting = Box::pin({
            let (here, served) = (here.clone(), served.clone());
            async move {
                let guards = here.lock("{a}").await;
                served.fetch_add(1, Ordering::SeqCst);
                guards.release().await;
            }
        });
        assert!(futures_util::poll!(&mut waiting).is_pending());
        ours.spawn(waiting);
    }
    let theirs = enqueue(server, &there, "{a}").await;
    // The notification of a waiter may be lost; the next renewal reports it.
    let left = || server.query::<i64>("PTTL holdfast:lock:{a}");
    let mut before = left();
    until("the lease is renewed", async || {
        let now = left();
        std::mem::replace(&mut before, now) < now
    })
    .await;
    held.release().await;
    let theirs = theirs.await.unwrap();
    let handoffs = served.load(Ordering::SeqCst);
    theirs.release().await;
    while let Some(waiter) = ours.join_next().await {
        waiter.unwrap();
    }
    handoffs
}

/// A waiter that was queued by a handoff has a ticket, and no recorded poll yet.
async fn ticket_or_poll_keeps_waiter_alive(server: &Server) {
    let process = server.process_with_long_times();
    let (soon_us, soon_ms) = soon(server);
    let queues = [
        (vec![ticket(soon_us, "new.0")], "new.0"),
        (vec![ticket(1, "polls.0"), seen(soon_ms, "polls.0")], "polls.0"),
        (vec![ticket(1, "dead.0")], ""),
        (vec![ticket(1, "dead.0"), seen(1, "dead.0")], ""),
        (vec![ticket(1, "dead.0"), ticket(2, "dead.1"), ticket(soon_us, "new.0")], "new.0"),
    ];
    for (queue, next_owner) in queues {
        for has_expired in [false, true] {
            let held = process.lock("{a}").await;
            for command in &queue {
                let _: i64 = server.query(command);
            }
            if has_expired {
                let _: i64 = server.query("DEL holdfast:lock:{a}");
            }
            held.release().await;
            assert_eq!(owner(server), next_owner, "{queue:?}, expired: {has_expired}");
            for key in ["{a}", "{a}:queue", "{a}:seen"] {
                let _: i64 = server.query(&format!("DEL holdfast:lock:{key}"));
            }
        }
    }
}

async fn requeued_waiter_leaves_no_key_without_expiry(server: &Server) {
    let (here, there) = (server.process_with_long_times(), server.process_with_long_times());
    // A direct handoff; behind a dead waiter; after Redis lost the lock.
    for before in ["PING", &ticket(1, "dead.0"), "DEL holdfast:lock:{a}"] {
        let held = here.lock("{a}").await;
        until_holder_listens(server, "{a}").await;
        let theirs = enqueue(server, &there, "{a}").await;
        until_notified_of_waiter(&held, "{a}").await;
        let mut again = Box::pin(here.lock("{a}"));
        assert!(futures_util::poll!(&mut again).is_pending());
        // As if both had been queued by a handoff.
        let _: i64 = server.query("DEL holdfast:lock:{a}:seen");
        let _: ::redis::Value = server.query(before);
        assert_ne!(held.release().await, Released::Unknown, "{before}: Redis responds in time");
        let theirs = theirs.await.unwrap();
        let queue: Vec<String> = server.query("ZRANGE holdfast:lock:{a}:queue 0 -1");
        assert_eq!(queue.len(), 1, "{before}: {queue:?}");
        for key in server.keys() {
            let ttl_ms: i64 = server.query(&format!("PTTL {key}"));
            assert!(ttl_ms > 0, "{before}: {key} never expires");
        }
        theirs.release().await;
        again.await.release().await;
    }
}

/// A time after all pauses of these tests, in microseconds and in milliseconds.
fn soon(server: &Server) -> (u64, u64) {
    let now: (u64, u64) = server.query("TIME");
    ((now.0 + 600) * 1_000_000, (now.0 + 600) * 1_000)
}

fn ticket(us: u64, owner: &str) -> String {
    format!("ZADD holdfast:lock:{{a}}:queue {us} {owner}")
}

fn seen(ms: u64, owner: &str) -> String {
    format!("ZADD holdfast:lock:{{a}}:seen {ms} {owner}")
}

/// The owner of the lock, or an empty string.
fn owner(server: &Server) -> String {
    let value: Option<String> = server.query("GET holdfast:lock:{a}");
    value.as_deref().and_then(|value| value.split(' ').next()).unwrap_or("").to_owned()
}
