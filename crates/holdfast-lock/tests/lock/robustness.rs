//! Extreme settings and prefixes, and many instances.

use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, AcquireRequest, LockKey, LockKind, Locks, Redis, Released, Settings, Wait,
};
use tokio::time::Instant;

use crate::server::{Process, Server, run, until};
use crate::topology::Topology;

fn locks(server: &Server, settings: Settings) -> Process {
    Process(Locks::new(Redis::open(server.url()).unwrap(), settings).unwrap())
}

/// Asserts that `waiter` gets a key that another process holds and releases.
async fn assert_waiter_gets_released_lock(server: &Server, waiter: Process, kind: LockKind) {
    let keys = [LockKey::new("{a}").unwrap()];
    let other = server.process();
    let held = other.lock("{a}").await;
    let waiting = tokio::spawn(async move {
        let deadline = Instant::now() + Duration::from_secs(20);
        let request =
            AcquireRequest::new(kind, &keys).with_wait(Wait::Retry).with_deadline(deadline);
        waiter.0.acquire(request).await.unwrap()
    });
    until("it has tried", async || {
        let tries: String = server.query("INFO commandstats");
        tries.contains("cmdstat_set:") || tries.contains("cmdstat_zadd:")
    })
    .await;
    held.release().await;
    let AcquireOutcome::Acquired(guards) = waiting.await.unwrap() else {
        panic!("it was released")
    };
    assert_eq!(guards.release().await, Released::Held);
}

#[test]
fn endless_durations_are_accepted() {
    run(Topology::Redis, async |server| {
        let mut settings =
            Settings::default().with_acquire_timeout(Duration::MAX).with_max_hold(Duration::MAX);
        settings.fenced.local_handoff_period = Duration::MAX;
        for kind in [LockKind::Fenced, LockKind::Owner, LockKind::Watchdog] {
            assert_waiter_gets_released_lock(server, locks(server, settings.clone()), kind).await;
        }
        let process = locks(server, settings.clone());
        let guard = process.0.lock(&LockKey::new("{a}").unwrap()).await.unwrap();
        // Another process waits, so the period of local handoffs begins.
        let next = crate::server::enqueue(server, &server.process(), "{a}").await;
        guard.wait_until_wanted().await;
        assert_eq!(guard.release().await, Released::Held);
        next.await.unwrap().release().await;

        let process = locks(server, settings);
        let process = process.0.with_acquire_timeout(Duration::MAX).with_max_hold(Duration::MAX);
        let guard = process.lock(&LockKey::new("{b}").unwrap()).await.unwrap();
        assert_eq!(guard.release().await, Released::Held);
    });
}

#[test]
fn endless_retry_interval_ends_at_the_timeout() {
    run(Topology::Redis, async |server| {
        let held = server.process().lock("{a}").await;
        let settings = Settings::default()
            .with_retry_interval(Duration::MAX)
            .with_acquire_timeout(Duration::from_millis(50));
        let keys = [LockKey::new("{a}").unwrap()];
        let deadline = Instant::now() + Duration::from_secs(20);
        let request = AcquireRequest::new(LockKind::Owner, &keys).with_deadline(deadline);
        let outcome = locks(server, settings).0.acquire(request).await.unwrap();
        assert!(matches!(outcome, AcquireOutcome::TimedOut { .. }), "{outcome:?}");
        held.release().await;
    });
}

#[test]
fn dropped_locks_close_their_connections() {
    run(Topology::Redis, async |server| {
        let connections = || server.query::<String>("CLIENT LIST").lines().count();
        let before = connections();
        let all: Vec<Process> = (0..50).map(|_| server.process()).collect();
        for process in &all {
            process.lock("{a}").await.release().await;
        }
        until("all are subscribed", async || connections() >= before + 100).await;

        drop(all);
        until("their connections are closed", async || connections() <= before).await;
    });
}

#[test]
fn prefix_is_not_a_pattern() {
    run(Topology::Redis, async |server| {
        let with_prefix = |prefix: &str| {
            let key_prefix = prefix.to_owned();
            locks(server, Settings::default().with_key_prefix(key_prefix))
        };
        let (ours, theirs) = (with_prefix("shop[1]*?\\:"), with_prefix("shop1-x\\:"));
        let (our_lock, their_lock) = (ours.lock("{a}").await, theirs.lock("{b}").await);

        let held = ours.0.held_locks().await.unwrap();
        let keys: Vec<&str> = held.iter().map(|lock| lock.key.as_str()).collect();
        assert_eq!(keys, ["shop[1]*?\\:lock:{a}"]);
        our_lock.release().await;
        their_lock.release().await;
    });
}
