//! `lock`, `with_lock`, and the end of a lease, as its holder sees it.

use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Error, LockKey, LockKind, Locks, Redis, Settings,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::server::{Server, TTL};

const TIMEOUT: Duration = Duration::from_millis(300);

fn key() -> LockKey {
    LockKey::new("{a}").unwrap()
}

fn locks_with_timeout(server: &Server, timeout: Duration) -> Locks {
    let settings = Settings { acquire_timeout: timeout, ..Settings::default() };
    Locks::new(Redis::open(server.url()).unwrap(), settings).unwrap()
}

#[tokio::test]
async fn lock_times_out_and_names_the_holder() {
    let server = Server::start();
    let held = server.process().take("{a}").await;
    let started = Instant::now();
    let refused = locks_with_timeout(&server, TIMEOUT).lock(&key()).await;
    let Err(Error::TimedOut { waited, holder }) = refused else { panic!("{refused:?}") };
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
            let request = AcquireRequest { kind, wait: *wait, ttl: None, deadline, keys: &[key()] };
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
async fn with_lock_releases_after_the_work() {
    let server = Server::start();
    let process = server.process();
    let first = process.0.with_lock(&key(), async |lease| lease.fence()).await.unwrap();
    let second = process.0.with_lock(&key(), async |lease| lease.fence()).await.unwrap();
    assert!(second > first);
    assert!(server.process().finds_it_free("{a}").await);
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
async fn with_lock_reports_lease_that_ended_meanwhile() {
    let server = Server::start();
    let process = server.process();
    // Work without an await: nothing can drop it before its end.
    let work = process.0.with_lock(&key(), async |lease| while lease.is_held() {}).await;
    assert!(matches!(work, Err(Error::Lost)));
}

#[tokio::test]
async fn late_renewal_does_not_revive_a_lost_lease() {
    let server = Server::start();
    let lease = server.process().0.lock(&key()).await.unwrap();
    let remaining_ms = || server.ask::<i64>("PTTL holdfast:lock:{a}");
    // The runtime has one thread. It stops when Redis has renewed the lease, before the actor can
    // read the reply, until the deadline that the actor knows has passed.
    let mut before = remaining_ms();
    while remaining_ms() <= before {
        before = remaining_ms();
        tokio::task::yield_now().await;
    }
    while lease.is_held() {
        std::hint::spin_loop();
    }
    let observed = Instant::now();
    while observed.elapsed() < TTL {
        assert!(!lease.is_held(), "{:?} after its end", observed.elapsed());
        sleep(Duration::from_millis(1)).await;
    }
}
