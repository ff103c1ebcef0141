//! `lock`, `with_lock`, the limits of waiting, and the end of a lease, as its holder sees it.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::fenced::Timing;
use holdfast_lock::observer::{Event, Observer};
use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Error, LockKey, LockKind, Locks, MAX_WAITERS, Redis, Released,
    Settings, Wait,
};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::server::{LONG_TTL, Server, TTL, enqueue, until};

const TIMEOUT: Duration = Duration::from_millis(300);

fn key() -> LockKey {
    LockKey::new("{a}").unwrap()
}

fn locks_with_timeout(server: &Server, timeout: Duration) -> Locks {
    let settings = Settings::default().with_acquire_timeout(timeout);
    Locks::new(Redis::open(server.url()).unwrap(), settings).unwrap()
}

#[tokio::test]
async fn lock_times_out_and_names_the_holder() {
    let server = Server::start();
    let held = server.process().lock("{a}").await;
    let started = Instant::now();
    let result = locks_with_timeout(&server, TIMEOUT).lock(&key()).await;
    let Err(Error::TimedOut { waited, holder }) = result else { panic!("{result:?}") };
    assert!(waited >= TIMEOUT && waited <= started.elapsed(), "{waited:?}");
    assert!(holder.process.is_some() && holder.fence.is_some(), "{holder:?}");
    held.release().await;
    assert!(locks_with_timeout(&server, TIMEOUT).lock(&key()).await.is_ok());
}

#[tokio::test]
async fn timeout_of_zero_tries_once() {
    let server = Server::start();
    let locks = locks_with_timeout(&server, Duration::ZERO);
    for kind in [LockKind::Local, LockKind::Owner, LockKind::Watchdog, LockKind::Fenced] {
        for wait in kind.wait_modes() {
            let deadline = Instant::now() + Duration::from_secs(5);
            let keys = &[key(), LockKey::new("{b}").unwrap()];
            let request = AcquireRequest::new(kind, keys).with_wait(*wait).with_deadline(deadline);
            let AcquireOutcome::Acquired(held) = locks.acquire(request).await.unwrap() else {
                panic!("{kind:?} was free")
            };
            let second = locks.acquire(request).await.unwrap();
            assert!(!matches!(second, AcquireOutcome::Acquired(_)), "{kind:?} was held");
            held.release().await;
        }
    }
}

#[tokio::test]
async fn try_lock_and_lock_for_do_not_wait_longer() {
    let server = Server::start();
    let (here, there) = (server.process().0, server.process().0);
    let held = here.try_lock(&key()).await.unwrap().expect("it was free");
    for other in [&here, &there] {
        assert!(other.try_lock(&key()).await.unwrap().is_none());
        let result = other.lock_for(&key(), TIMEOUT).await;
        assert!(matches!(result, Err(Error::TimedOut { waited, .. }) if waited >= TIMEOUT));
    }
    let key = key();
    let waiting = there.lock_for(&key, Duration::MAX);
    let releasing = async {
        held.wait_until_wanted().await;
        held.release().await
    };
    let (next, released) = tokio::join!(waiting, releasing);
    assert_eq!((next.unwrap().release().await, released), (Released::Held, Released::Held));
}

/// Breaks the rule that an observer must not panic.
#[derive(Debug)]
struct Panics;

impl Observer for Panics {
    fn observe(&self, event: Event) {
        assert_ne!(event, Event::ContentionStarted, "as the test demands");
    }
}

#[tokio::test]
async fn release_after_panic_of_actor_is_unknown() {
    let server = Server::start();
    let settings =
        Settings::default().with_fenced(Timing::default().with_ttl(LONG_TTL)).with_observer(Panics);
    let locks = Locks::new(Redis::open(server.url()).unwrap(), settings).unwrap();
    let mut held = locks.lock(&key()).await.unwrap();

    let there = server.process();
    let waiter = enqueue(&server, &there, "{a}").await;
    held.wait_until_wanted().await;
    // Its channel closes when the actor has ended.
    assert_eq!(held.raise_fence(0).await.unwrap(), None);
    assert!(held.is_held(), "the lease lasts");
    assert_eq!(held.release().await, Released::Unknown);
    waiter.abort();
}

#[tokio::test]
async fn with_lock_releases_after_the_work() {
    let server = Server::start();
    let process = server.process();
    let first = process.0.with_lock(&key(), async |lease| lease.fence()).await.unwrap();
    let second = process.0.with_lock(&key(), async |lease| lease.fence()).await.unwrap();
    assert!(second > first);
    assert!(server.process().is_free("{a}").await);
}

#[tokio::test]
async fn with_lock_drops_work_when_lease_is_lost() {
    let server = Server::start();
    let process = server.process();
    let (alive, dropped) = oneshot::channel::<()>();
    let key = key();
    let work = process.0.with_lock(&key, async |_| {
        let _alive = alive;
        process.0.force_release(&key).await.unwrap();
        std::future::pending::<()>().await;
    });
    assert!(matches!(work.await, Err(Error::Lost)));
    assert!(dropped.await.is_err(), "the work was dropped");
}

#[tokio::test]
async fn with_lock_reports_lease_that_ended_during_work() {
    let server = Server::start();
    let process = server.process();
    // Work without an await cannot be dropped before its end.
    let work = process.0.with_lock(&key(), async |lease| while lease.is_held() {}).await;
    assert!(matches!(work, Err(Error::Lost)));
}

#[tokio::test]
async fn late_renewal_does_not_revive_a_lost_lease() {
    let server = Server::start();
    let lease = server.process().0.lock(&key()).await.unwrap();
    let remaining_ms = || server.query::<i64>("PTTL holdfast:lock:{a}");
    // The runtime has one thread. It stops when Redis has renewed the lease, before the actor can
    // read the reply, until the deadline that the actor knows has passed.
    let mut before = remaining_ms();
    while remaining_ms() <= before {
        before = remaining_ms();
        assert!(before > 0, "it expired before it was renewed");
        tokio::task::yield_now().await;
    }
    while lease.is_held() {
        std::hint::spin_loop();
    }
    // For as long as the renewed lease would have lasted.
    let observed = Instant::now();
    while observed.elapsed() < TTL {
        assert!(!lease.is_held(), "{:?} after its end", observed.elapsed());
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn lock_that_is_held_too_long_expires() {
    let server = Server::start();
    let fenced = Timing::default().with_ttl(TTL);
    let settings = Settings::default().with_ttl(TTL).with_max_hold(2 * TTL).with_fenced(fenced);
    let locks = Locks::new(Redis::open(server.url()).unwrap(), settings).unwrap();
    for kind in [LockKind::Watchdog, LockKind::Fenced] {
        let deadline = Instant::now() + Duration::from_secs(5);
        let keys = &[key()];
        let request = AcquireRequest::new(kind, keys).with_wait(Wait::Try).with_deadline(deadline);
        let AcquireOutcome::Acquired(held) = locks.acquire(request).await.unwrap() else {
            panic!("{kind:?} was free")
        };
        let acquired = Instant::now();
        until("its lease ends", async || server.query::<i64>("EXISTS holdfast:lock:{a}") == 0)
            .await;
        assert!(acquired.elapsed() > TTL, "{kind:?} was not renewed");
        assert!(held.get(&key()).unwrap().as_fenced().is_none_or(|guard| !guard.is_held()));
        assert_eq!(held.release().await, Released::Lost);
    }
}

#[derive(Debug)]
struct Renewals(watch::Sender<u32>);

impl Observer for Renewals {
    fn observe(&self, event: Event) {
        if matches!(event, Event::Renewed { .. }) {
            self.0.send_modify(|count| *count += 1);
        }
    }
}

#[tokio::test]
async fn each_local_holder_is_renewed_anew() {
    const HOLDERS: usize = 6;
    const RENEWALS: u32 = 2;
    let server = Server::start();
    let (max_hold, count) = (2 * TTL, watch::Sender::new(0));
    let settings = Settings::default()
        .with_acquire_timeout(Duration::from_secs(20))
        .with_max_hold(max_hold)
        .with_fenced(Timing::default().with_ttl(TTL))
        .with_observer(Renewals(count.clone()));
    let locks = &Locks::new(Redis::open(server.url()).unwrap(), settings).unwrap();
    let started = Instant::now();
    let holders = join_all((0..HOLDERS).map(async |_| {
        let lease = locks.lock(&key()).await.unwrap();
        let before = *count.borrow();
        let renewed = |count: &u32| *count >= before + RENEWALS;
        let mut renewals = count.subscribe();
        let waited = timeout(Duration::from_secs(10), renewals.wait_for(renewed)).await;
        assert!(waited.is_ok(), "the lease is no longer renewed");
        (lease.fence(), lease.release().await)
    }));
    let holders = holders.await;
    assert!(started.elapsed() > max_hold + TTL, "one lease was renewed past the bound");
    let first = holders[0].0;
    let expected = (first..).zip([Released::Held; HOLDERS]);
    assert_eq!(holders, expected.collect::<Vec<_>>(), "one lease, handed off in order");
}

#[tokio::test]
async fn full_queue_rejects_at_once() {
    let server = Server::start();
    let locks = &locks_with_timeout(&server, Duration::from_secs(20));
    let deadline = Instant::now() + Duration::from_secs(20);
    for kind in [LockKind::Local, LockKind::Fenced] {
        let acquire = |wait: Wait, name: &'static str| {
            Box::pin(async move {
                let keys = &[LockKey::new(name).unwrap()];
                locks
                    .acquire(
                        AcquireRequest::new(kind, keys).with_wait(wait).with_deadline(deadline),
                    )
                    .await
            })
        };
        let wait = kind.wait_modes()[0];
        let Ok(AcquireOutcome::Acquired(held)) = acquire(wait, "{a}").await else {
            panic!("{kind:?} was free")
        };
        let mut waiters: Vec<_> = (0..MAX_WAITERS).map(|_| acquire(wait, "{a}")).collect();
        for waiter in &mut waiters {
            assert!(futures_util::poll!(waiter).is_pending());
        }
        let rejected = acquire(wait, "{a}").await;
        assert!(matches!(rejected, Err(Error::QueueFull(_))), "{kind:?}: {rejected:?}");
        let tried = acquire(Wait::Try, "{a}").await;
        assert!(matches!(tried, Ok(AcquireOutcome::Busy(_))), "{kind:?}: {tried:?}");
        let other = acquire(wait, "{b}").await;
        assert!(matches!(other, Ok(AcquireOutcome::Acquired(_))), "{kind:?}: {other:?}");
        waiters.pop();
        let mut admitted = acquire(wait, "{a}");
        assert!(futures_util::poll!(&mut admitted).is_pending(), "{kind:?}");
        drop(waiters);
        held.release().await;
        let acquired = admitted.await;
        assert!(matches!(acquired, Ok(AcquireOutcome::Acquired(_))), "{kind:?}: {acquired:?}");
    }
}

#[tokio::test]
async fn next_key_is_not_requested_late() {
    let server = Server::start();
    let locks = locks_with_timeout(&server, Duration::from_secs(2));
    let other = server.process();
    let held = other.lock("{a}").await;
    let deadline = Instant::now() + Duration::from_secs(2);
    let keys = &["{a}", "{b}"].map(|name| LockKey::new(name).unwrap());
    let (kind, wait) = (LockKind::Fenced, Wait::Notify);
    let acquiring =
        locks.acquire(AcquireRequest::new(kind, keys).with_wait(wait).with_deadline(deadline));
    let releasing = async {
        // What is tested is the time that is left: enough for the lock, too short for the next one.
        sleep_until(deadline - Duration::from_millis(250)).await;
        held.release().await;
    };
    let (outcome, ()) = tokio::join!(acquiring, releasing);
    assert!(matches!(outcome, Ok(AcquireOutcome::TimedOut { .. })), "{outcome:?}");
    assert_eq!(
        server.query::<i64>("EXISTS holdfast:lock:{b}:fence"),
        0,
        "the next key was acquired"
    );
    assert!(other.is_free("{a}").await);
}
