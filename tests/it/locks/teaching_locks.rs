//! The teaching locks, each at the moment at which it breaks.
//!
//! A future that nobody polls stands still, like a process that is stopped; one that is forgotten
//! is a process that was killed.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::locks::TeachingLock::{CheckThenDel, ExpireOnly, Setnx, SetnxExpire, Ttl};
use holdfast::locks::{LockError, LockRequest, Mechanism, QueueOptions, ShopLocks};
use holdfast::probe::{Pause, PauseBoard, Point, Probe, RequestProbe};
use holdfast_lock::{AcquireOutcome, Guards, LockKey, LockKind, Redis, Released, Settings, Wait};

use crate::server::{Server, until};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);
const KEY: &str = "holdfast:lock:{a}";

fn locks(server: &Server) -> ShopLocks {
    ShopLocks::new(Redis::open(server.url()).unwrap(), Vec::new(), Settings::default()).unwrap()
}

async fn ask(
    locks: &ShopLocks,
    kind: Mechanism,
    wait: Wait,
    ttl: Duration,
    probe: &Probe,
) -> Result<AcquireOutcome, LockError> {
    let keys = [LockKey::new("{a}").unwrap()];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let queue = QueueOptions::default();
    let (mechanism, keys, ttl) = (kind, &keys, Some(ttl));
    locks.acquire(LockRequest { mechanism, wait, ttl, deadline, keys, queue, probe }).await
}

async fn take(locks: &ShopLocks, kind: Mechanism, ttl: Duration, probe: &Probe) -> Guards {
    match ask(locks, kind, Wait::Retry, ttl, probe).await.unwrap() {
        AcquireOutcome::Acquired(guards) => guards,
        other => panic!("{kind:?}: {other:?}"),
    }
}

/// Whether one more is let in, who then goes on holding the lock.
async fn one_more_is_let_in(server: &Server, kind: Mechanism) -> bool {
    match ask(&locks(server), kind, Wait::Try, LONG, &Probe::Off).await.unwrap() {
        AcquireOutcome::Acquired(guards) => {
            guards.leave_to_expire();
            true
        }
        AcquireOutcome::Busy(_) => false,
        other @ AcquireOutcome::TimedOut { .. } => panic!("{other:?}"),
    }
}

async fn until_the_lease_has_ended(server: &Server) {
    until("the lease has ended", async || server.ask::<i64>(&format!("EXISTS {KEY}")) == 0).await;
}

/// Who stands still at that point, for a moment.
fn stands_at(point: Point) -> (Arc<RequestProbe>, Probe) {
    let until = tokio::time::Instant::now() + LONG;
    let watch = Arc::new(RequestProbe {
        record: true,
        pause: Some(Pause { at: Some(point), length: Some(Duration::from_millis(500)), until }),
        ..RequestProbe::new("here", uuid::Uuid::new_v4(), &PauseBoard::default())
    });
    (watch.clone(), Probe::Lab(watch))
}

/// Polls the future until it has come to where it is to stand still, and no more.
async fn come_there<T>(future: Pin<&mut impl Future<Output = T>>, watch: &RequestProbe) {
    let there = async || !watch.events.lock().is_empty();
    tokio::select! {
        _ = future => panic!("it did not stand still"),
        () = until("it is there", there) => {}
    }
}

#[tokio::test]
async fn dead_holder_locks_forever_only_under_setnx() {
    for lock in [Setnx, SetnxExpire, Ttl, CheckThenDel, ExpireOnly] {
        let (server, kind) = (Server::start(), Mechanism::Teaching(lock));
        std::mem::forget(take(&locks(&server), kind, SHORT, &Probe::Off).await);
        assert!(!one_more_is_let_in(&server, kind).await, "{lock:?}");
        if lock == Setnx {
            assert_eq!(server.ask::<i64>(&format!("PTTL {KEY}")), -1, "it never ends");
        } else {
            until_the_lease_has_ended(&server).await;
            assert!(one_more_is_let_in(&server, kind).await, "{lock:?}");
        }
    }
}

#[tokio::test]
async fn death_before_expire_locks_forever() {
    let (server, kind) = (Server::start(), Mechanism::Teaching(SetnxExpire));
    let (watch, probe) = stands_at(Point::Expire);
    let here = locks(&server);
    let mut taking = Box::pin(take(&here, kind, SHORT, &probe));
    come_there(taking.as_mut(), &watch).await;
    assert_eq!(server.ask::<i64>(&format!("PTTL {KEY}")), -1, "it never ends");
    assert!(!one_more_is_let_in(&server, kind).await);
    // Who only loses patience there, and lives, cleans up.
    drop(taking);
    until_the_lease_has_ended(&server).await;
}

/// What the first one's release says when its lease has ended and a second one has the lock, and
/// whether a third one is let in then.
async fn late_release(kind: Mechanism) -> (Released, bool) {
    let server = Server::start();
    let first = take(&locks(&server), kind, SHORT, &Probe::Off).await;
    let second = take(&locks(&server), kind, LONG, &Probe::Off).await;
    let released = first.release().await;
    let third = one_more_is_let_in(&server, kind).await;
    second.leave_to_expire();
    (released, third)
}

#[tokio::test]
async fn late_release_without_owner_check_deletes_other_lock() {
    for lock in [SetnxExpire, Ttl] {
        let late = late_release(Mechanism::Teaching(lock)).await;
        assert_eq!(late, (Released::Held, true), "{lock:?}");
    }
    for kind in [Mechanism::Teaching(CheckThenDel), Mechanism::Lock(LockKind::Owner)] {
        assert_eq!(late_release(kind).await, (Released::Lost, false), "{kind:?}");
    }
    let nothing_given_back = late_release(Mechanism::Teaching(ExpireOnly)).await;
    assert_eq!(nothing_given_back, (Released::Held, false));
}

#[tokio::test]
async fn pause_after_owner_check_deletes_other_lock() {
    let (server, kind) = (Server::start(), Mechanism::Teaching(CheckThenDel));
    let (watch, probe) = stands_at(Point::Delete);
    let first = take(&locks(&server), kind, 5 * SHORT, &probe).await;
    let mut releasing = Box::pin(first.release());
    come_there(releasing.as_mut(), &watch).await;
    let second = take(&locks(&server), kind, LONG, &Probe::Off).await;
    assert!(!one_more_is_let_in(&server, kind).await, "the second one has it");
    assert_eq!(releasing.await, Released::Held, "as far as it could see");
    assert!(one_more_is_let_in(&server, kind).await, "beside the second one");
    second.leave_to_expire();
}

#[tokio::test]
async fn expire_only_admits_one_holder_per_lease() {
    let (server, kind) = (Server::start(), Mechanism::Teaching(ExpireOnly));
    let here = locks(&server);
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(take(&here, kind, SHORT, &Probe::Off).await.release().await, Released::Held);
    }
    assert!(began.elapsed() >= 2 * SHORT, "{:?}", began.elapsed());
}

#[tokio::test]
async fn dropped_guard_releases_only_its_own_lock() {
    for lock in [Setnx, SetnxExpire, Ttl, CheckThenDel] {
        let (server, kind) = (Server::start(), Mechanism::Teaching(lock));
        drop(take(&locks(&server), kind, LONG, &Probe::Off).await);
        until_the_lease_has_ended(&server).await;
        // Somebody else's is left alone.
        if lock != Setnx {
            let late = take(&locks(&server), kind, SHORT, &Probe::Off).await;
            let next = take(&locks(&server), kind, LONG, &Probe::Off).await;
            drop(late);
            assert!(!one_more_is_let_in(&server, kind).await, "{lock:?}");
            next.leave_to_expire();
        }
    }
}
