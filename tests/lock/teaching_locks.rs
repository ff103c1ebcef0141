//! The teaching locks, each at the moment at which it breaks.
//!
//! A future that is not polled is like a paused process; one that is leaked is like a killed one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::lock::ladder::rung::Rung;
use holdfast::lock::{
    Ask, Error, Guards, Kind, LockKey, Locks, Manner, Outcome, Redis, Released, Settings, Wait,
};
use holdfast::probe::{Board, Pause, Point, Probe, Watch};
use parking_lot::Mutex;

use crate::server::{Server, until};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);
const KEY: &str = "holdfast:lock:{a}";

fn locks(server: &Server) -> Locks {
    Locks::new(Redis::open(server.url()).unwrap(), Settings::default())
}

async fn ask(
    locks: &Locks,
    kind: Kind,
    wait: Wait,
    ttl: Duration,
    probe: &Probe,
) -> Result<Outcome, Error> {
    let keys = [LockKey::new("{a}").unwrap()];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let ask = Ask { kind, wait, ttl: Some(ttl), deadline, keys: &keys };
    locks.acquire_in_line(ask, &Manner::default(), probe).await
}

async fn take(locks: &Locks, kind: Kind, ttl: Duration, probe: &Probe) -> Guards {
    match ask(locks, kind, Wait::Retry, ttl, probe).await.unwrap() {
        Outcome::Acquired(guards) => guards,
        other => panic!("{kind:?}: {other:?}"),
    }
}

/// Returns whether one more holder is admitted, which keeps the lock.
async fn one_more_is_let_in(server: &Server, kind: Kind) -> bool {
    match ask(&locks(server), kind, Wait::Try, LONG, &Probe::Off).await.unwrap() {
        Outcome::Acquired(guards) => {
            guards.leave_to_expire();
            true
        }
        Outcome::Busy(_) => false,
        other @ Outcome::TimedOut { .. } => panic!("{other:?}"),
    }
}

async fn until_the_lease_has_ended(server: &Server) {
    until("the lease has ended", async || server.ask::<i64>(&format!("EXISTS {KEY}")) == 0).await;
}

/// A probe that pauses at that point for a moment.
fn stands_at(point: Point) -> (Arc<Watch>, Probe) {
    let until = tokio::time::Instant::now() + LONG;
    let watch = Arc::new(Watch {
        replica: "here".to_owned(),
        work: Duration::ZERO,
        record: true,
        pause: Some(Pause { at: Some(point), length: Some(Duration::from_millis(500)), until }),
        request_id: uuid::Uuid::new_v4(),
        board: Board::default(),
        released: false.into(),
        events: Mutex::default(),
    });
    (watch.clone(), Probe::Lab(watch))
}

/// Polls the future until it has come to where it is to stand still, and no more.
async fn come_there<T>(future: Pin<&mut impl Future<Output = T>>, watch: &Watch) {
    let there = async || !watch.events.lock().is_empty();
    tokio::select! {
        _ = future => panic!("it did not stand still"),
        () = until("it is there", there) => {}
    }
}

#[tokio::test]
async fn dead_holder_locks_forever_only_under_setnx() {
    for rung in [Rung::Setnx, Rung::SetnxExpire, Rung::Ttl, Rung::CheckThenDel, Rung::ExpireOnly] {
        let (server, kind) = (Server::start(), Kind::Rung(rung));
        std::mem::forget(take(&locks(&server), kind, SHORT, &Probe::Off).await);
        assert!(!one_more_is_let_in(&server, kind).await, "{rung:?}");
        if rung == Rung::Setnx {
            assert_eq!(server.ask::<i64>(&format!("PTTL {KEY}")), -1, "it never ends");
        } else {
            until_the_lease_has_ended(&server).await;
            assert!(one_more_is_let_in(&server, kind).await, "{rung:?}");
        }
    }
}

#[tokio::test]
async fn death_before_expire_locks_forever() {
    let (server, kind) = (Server::start(), Kind::Rung(Rung::SetnxExpire));
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

/// Releases the first lock after its lease has ended and a second holder has acquired. Returns the
/// result, and whether a third holder is admitted then.
async fn late_release(kind: Kind) -> (Released, bool) {
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
    for rung in [Rung::SetnxExpire, Rung::Ttl] {
        let late = late_release(Kind::Rung(rung)).await;
        assert_eq!(late, (Released::Held, true), "{rung:?}");
    }
    for kind in [Kind::Rung(Rung::CheckThenDel), Kind::Owner] {
        assert_eq!(late_release(kind).await, (Released::Lost, false), "{kind:?}");
    }
    let nothing_given_back = late_release(Kind::Rung(Rung::ExpireOnly)).await;
    assert_eq!(nothing_given_back, (Released::Held, false));
}

#[tokio::test]
async fn pause_after_owner_check_deletes_other_lock() {
    let (server, kind) = (Server::start(), Kind::Rung(Rung::CheckThenDel));
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
    let (server, kind) = (Server::start(), Kind::Rung(Rung::ExpireOnly));
    let here = locks(&server);
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(take(&here, kind, SHORT, &Probe::Off).await.release().await, Released::Held);
    }
    assert!(began.elapsed() >= 2 * SHORT, "{:?}", began.elapsed());
}

#[tokio::test]
async fn dropped_guard_releases_only_its_own_lock() {
    for rung in [Rung::Setnx, Rung::SetnxExpire, Rung::Ttl, Rung::CheckThenDel] {
        let (server, kind) = (Server::start(), Kind::Rung(rung));
        drop(take(&locks(&server), kind, LONG, &Probe::Off).await);
        until_the_lease_has_ended(&server).await;
        // The next holder's lock is kept.
        if rung != Rung::Setnx {
            let late = take(&locks(&server), kind, SHORT, &Probe::Off).await;
            let next = take(&locks(&server), kind, LONG, &Probe::Off).await;
            drop(late);
            assert!(!one_more_is_let_in(&server, kind).await, "{rung:?}");
            next.leave_to_expire();
        }
    }
}
