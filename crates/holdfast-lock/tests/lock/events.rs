//! The events that an observer receives from each kind of lock, what a guard knows of its lease,
//! and what is left after `close`.

use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::fenced::Timing;
use holdfast_lock::observer::{Event, Observer};
use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Error, Guards, LockKey, LockKind, Locks, Redis, Released,
    Settings, Wait,
};
use parking_lot::Mutex;

use crate::server::{LONG_TTL, Server, until};

const KINDS: [LockKind; 5] =
    [LockKind::Local, LockKind::Owner, LockKind::Watchdog, LockKind::Quorum, LockKind::Fenced];

#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Observer for Recorder {
    fn observe(&self, event: Event) {
        self.0.lock().push(event);
    }
}

impl Recorder {
    /// Takes the events of acquisitions and their ends.
    fn take(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut *self.0.lock());
        events.retain(|event| !matches!(event, Event::Joined { .. } | Event::Renewed { .. }));
        events
    }
}

/// The locks of a process, whose events `observer` receives.
fn locks(server: &Server, ttl: Duration, observer: Recorder) -> Locks {
    let settings = Settings::default()
        .with_ttl(ttl)
        .with_fenced(Timing::default().with_ttl(ttl))
        .with_observer(observer);
    let redis = Redis::open(server.url()).unwrap();
    Locks::new(redis.clone(), settings).unwrap().with_quorum(vec![redis])
}

async fn acquire(locks: &Locks, kind: LockKind, key: &str) -> Result<Guards, Error> {
    let keys = [LockKey::new(key)?];
    match locks.acquire(AcquireRequest::new(kind, &keys).with_wait(Wait::Try)).await? {
        AcquireOutcome::Acquired(guards) => Ok(guards),
        other => panic!("{kind:?}: {other:?}"),
    }
}

fn remaining(guards: &Guards, key: &str) -> Option<Duration> {
    guards.get(&LockKey::new(key).unwrap()).unwrap().remaining()
}

#[tokio::test]
async fn observer_hears_begin_and_end_of_each_kind() {
    let server = Server::start();
    let recorder = Recorder::default();
    let locks = locks(&server, LONG_TTL, recorder.clone());

    for kind in KINDS {
        let held = acquire(&locks, kind, "{a}").await.unwrap();
        let left = remaining(&held, "{a}");
        assert_eq!(left.is_none(), kind == LockKind::Local, "{kind:?}: {left:?}");
        assert!(left.is_none_or(|left| left > LONG_TTL / 2 && left < LONG_TTL), "{left:?}");
        assert_eq!(held.release().await, Released::Held);
        let events = recorder.take();
        let [Event::Acquired { kind: begun, .. }, Event::Released { kind: ended, confirmed, .. }] =
            events[..]
        else {
            panic!("{kind:?}: {events:?}")
        };
        assert_eq!((begun, ended, confirmed), (kind, kind, true));

        // Dropped, it ends too, sooner or later.
        drop(acquire(&locks, kind, "{a}").await.unwrap());
        let mut events = Vec::new();
        until("the end is observed", async || {
            events.extend(recorder.take());
            events.len() == 2
        })
        .await;
        assert!(matches!(events[1], Event::Released { kind: it, .. } if it == kind), "{events:?}");

        if kind == LockKind::Local {
            continue;
        }
        until("it is free", async || server.keys_left().is_empty()).await;
        let held = acquire(&locks, kind, "{a}").await.unwrap();
        let _: i64 = server.query("DEL holdfast:lock:{a}");
        assert_eq!(held.release().await, Released::Lost, "{kind:?}");
        let events = recorder.take();
        assert!(matches!(events[1..], [Event::Lost { kind: it, .. }] if it == kind), "{events:?}");
    }
}

#[tokio::test]
async fn lost_lease_has_nothing_remaining() {
    let server = Server::start();
    let locks = locks(&server, Duration::from_millis(300), Recorder::default());
    for kind in [LockKind::Watchdog, LockKind::Fenced] {
        let held = acquire(&locks, kind, "{a}").await.unwrap();
        let _: i64 = server.query("DEL holdfast:lock:{a}");
        until("a renewal finds it lost", async || remaining(&held, "{a}") == Some(Duration::ZERO))
            .await;
        assert_eq!(held.release().await, Released::Lost);
    }
}

#[tokio::test]
async fn closed_locks_leave_nothing_held() {
    let server = Server::start();
    let recorder = Recorder::default();
    let locks = locks(&server, LONG_TTL, recorder.clone());

    let mut held = Vec::new();
    for (kind, key) in KINDS.into_iter().zip(["{0}", "{1}", "{2}", "{3}", "{4}"]) {
        held.push((kind, key, acquire(&locks, kind, key).await.unwrap()));
        // The runtime may end with `close`: a release in the background must not.
        drop(acquire(&locks, kind, &format!("{key}dropped")).await.unwrap());
    }
    // Others hold these: one caller queues, the other one polls.
    let there = server.process();
    let theirs = (there.lock("{b}").await, there.lock("{c}").await);
    let queued = {
        let (locks, key) = (locks.clone(), LockKey::new("{b}").unwrap());
        tokio::spawn(async move { locks.lock(&key).await.map(drop) })
    };
    let polling = {
        let (locks, keys) = (locks.clone(), [LockKey::new("{c}").unwrap()]);
        let request =
            async move { locks.acquire(AcquireRequest::new(LockKind::Owner, &keys)).await };
        tokio::spawn(async move { request.await.map(drop) })
    };
    until("one is queued", async || server.query::<u64>("ZCARD holdfast:lock:{b}:queue") == 1)
        .await;

    assert_eq!(locks.close().await, Released::Held);
    for waiter in [queued, polling] {
        let result = waiter.await.unwrap();
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    }
    theirs.0.release().await;
    theirs.1.release().await;
    assert_eq!(server.keys_left(), Vec::<String>::new());

    for (kind, key, guards) in held {
        let again = acquire(&locks, kind, key).await;
        assert!(matches!(again, Err(Error::Closed)), "{kind:?}: {again:?}");
        if kind != LockKind::Local {
            assert_eq!(remaining(&guards, key), Some(Duration::ZERO), "{kind:?}");
            assert_eq!(guards.release().await, Released::Lost, "{kind:?}");
        }
    }
    // The end of each acquisition was observed once.
    let (begun, ended): (Vec<_>, Vec<_>) =
        recorder.take().into_iter().partition(|event| matches!(event, Event::Acquired { .. }));
    assert_eq!(begun.len(), 2 * KINDS.len(), "{begun:?}");
    assert_eq!(ended.len(), begun.len(), "{ended:?}");
    assert_eq!(locks.close().await, Released::Held, "again");
}
