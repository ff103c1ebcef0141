//! Extreme settings and prefixes, and many instances.

use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Error, LockKey, LockKind, Locks, Redis, Released, Settings,
    Wait,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, timeout};

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

/// Every combination is either rejected by `Locks::new`, or makes locks that work.
#[test]
fn absurd_settings_are_rejected_or_work() {
    const DURATIONS: [Duration; 8] = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
        Duration::from_millis(10),
        Duration::from_secs(1),
        Duration::from_hours(24),
        Duration::from_secs(u64::MAX / 1_000_000),
        Duration::MAX,
    ];
    const CASES: u64 = 400;
    run(Topology::Redis, async |server| {
        let mut accepted = 0;
        for seed in 0..CASES {
            let mut random = StdRng::seed_from_u64(seed);
            let mut any = || DURATIONS[random.random_range(0..DURATIONS.len())];
            // Most combinations of seven would be rejected by one or the other.
            let usual = Duration::from_secs(10);
            let ttl = if seed % 2 == 0 { usual } else { any() };
            let mut settings = Settings::default()
                .with_ttl(ttl)
                .with_acquire_timeout(any())
                .with_max_hold(any())
                .with_retry_interval(if seed % 3 == 0 { any() } else { usual });
            settings.fenced.ttl = if seed % 5 == 0 { any() } else { usual };
            settings.fenced.local_handoff_period = any();
            if seed % 7 == 0 {
                settings.fenced.grant_ttl = any();
                settings.fenced.poll_interval = any();
            }
            settings.name = Some("~ @/".repeat(usize::try_from(seed).unwrap()));

            let redis = Redis::open(server.url()).unwrap();
            let locks = match Locks::new(redis, settings.clone()) {
                Ok(locks) => locks,
                Err(Error::InvalidSettings(_)) => continue,
                Err(other) => panic!("{settings:?}: {other:?}"),
            };
            accepted += 1;

            for kind in [LockKind::Fenced, LockKind::Owner, LockKind::Watchdog] {
                let keys = [LockKey::new(format!("{{{seed}}}")).unwrap()];
                let request = AcquireRequest::new(kind, &keys);
                let acquiring = timeout(Duration::from_secs(20), locks.acquire(request));
                let acquired = acquiring.await.unwrap_or_else(|_| panic!("hangs: {settings:?}"));
                let guards = match acquired {
                    Ok(AcquireOutcome::Acquired(guards)) => guards,
                    // Shorter than a call to Redis takes.
                    Ok(AcquireOutcome::TimedOut { .. })
                        if settings.acquire_timeout < Duration::from_secs(1) =>
                    {
                        continue;
                    }
                    other => panic!("{kind:?}, {settings:?}: {other:?}"),
                };
                let released = guards.release().await;
                // A lease of a few milliseconds may have expired.
                assert_ne!(released, Released::Unknown, "{kind:?}, {settings:?}");
            }
        }
        assert!((CASES / 10..CASES * 9 / 10).contains(&accepted), "{accepted} were accepted");
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

/// Any client that may publish in this Redis can send any number of messages.
#[test]
fn flooded_inbox_drops_and_works_again() {
    const MESSAGES: usize = 640;
    run(Topology::Redis, async |server| {
        let (here, there) = (server.process(), server.process());
        let mut inbox = here.0.inbox("test");
        let send = async |message: &str| {
            there.0.send_to_process(&here.0.process_id(), "test", message).await.unwrap();
        };
        // What is sent before it has subscribed is lost.
        let mut receive_next = async |marker: &str| {
            let mut others = 0;
            let arrives = async {
                loop {
                    send(marker).await;
                    while let Ok(message) = timeout(Duration::from_millis(50), inbox.next()).await {
                        if message == marker {
                            return others;
                        }
                        others += 1;
                    }
                }
            };
            timeout(Duration::from_secs(20), arrives).await.expect("the marker arrives")
        };
        receive_next("subscribed").await;

        // 40 MiB, which are not read.
        let flood = "x".repeat(64 << 10);
        for _ in 0..MESSAGES {
            send(&flood).await;
        }
        let received = receive_next("after the flood").await;
        // 256, and what was still on its way when this began to read.
        assert!((1..MESSAGES).contains(&received), "{received} of {MESSAGES}");

        send("next").await;
        let next = async { while inbox.next().await != "next" {} };
        timeout(Duration::from_secs(20), next).await.unwrap();
    });
}
