//! Futures that are dropped at each of their await points: no lock stays held, and no queue is
//! blocked.
//!
//! The lease is so long that a free lock was released, and did not expire. One thread only: no
//! response arrives while a future is polled, so that no run completes early by chance.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_lock::{
    AcquireOutcome, Error, Guards, IdempotencyLockResult, IdempotencyLocks, LockKey,
};
use holdfast_lock::{Redis, Released, Settings};
use holdfast_shop::locks::{Lock, LockRequest, QueueOptions, ShopLocks};
use holdfast_shop::probe::Probe;
use holdfast_testkit::cut::Cut;

use crate::server::{Server, until};

const LEASE: Duration = Duration::from_secs(60);
/// Time after which the lock of an idempotency key expires.
const KEY_LOCK_TTL: Duration = Duration::from_secs(3);
/// Upper bound of a release, on a busy machine.
const MAX_RELEASE_TIME: Duration = Duration::from_secs(5);

/// Redis servers, and the locks of two processes on them.
struct TestLocks {
    servers: Vec<Server>,
    here: ShopLocks,
    there: ShopLocks,
    last_fence: i64,
}

impl TestLocks {
    fn new() -> Self {
        let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
        let locks = || {
            let open = |server: &Server| Redis::open(server.url()).unwrap();
            let quorum = servers.iter().map(open).collect();
            ShopLocks::new(open(&servers[0]), quorum, Settings::default()).unwrap()
        };
        let (here, there) = (locks(), locks());
        Self { servers, here, there, last_fence: 0 }
    }

    /// The other process; `here` itself for a lock in one process.
    fn other(&self, kind: Lock) -> &ShopLocks {
        if kind.needs_redis() { &self.there } else { &self.here }
    }

    /// Asserts that the lock is free soon, and that the next fence is larger.
    async fn assert_free_soon(&mut self, kind: Lock, cut: Cut) {
        let started = Instant::now();
        let guards = acquire(self.other(kind), kind).await;
        assert!(started.elapsed() < MAX_RELEASE_TIME, "{kind:?} {cut:?}: {:?}", started.elapsed());
        self.assert_fence_grows(&guards, cut);
        guards.release().await;
    }

    /// Releases the guards of a run, if it completed, and waits until the lock is free. Returns
    /// whether it completed.
    async fn release_acquired(&mut self, acquired: Option<Guards>, kind: Lock, cut: Cut) -> bool {
        let complete = acquired.is_some();
        if let Some(guards) = acquired {
            self.assert_fence_grows(&guards, cut);
            guards.release().await;
        }
        self.assert_free_soon(kind, cut).await;
        complete
    }

    fn assert_fence_grows(&mut self, guards: &Guards, cut: Cut) {
        if let Some(fence) = guards.fence(&key()) {
            assert!(fence > self.last_fence, "{cut:?}: {fence} after {}", self.last_fence);
            self.last_fence = fence;
        }
    }

    async fn assert_no_keys_soon(&self) {
        until("no key is left", async || {
            self.servers.iter().all(|server| server.keys_left().is_empty())
        })
        .await;
    }

    /// Returns when a waiter is queued, has tried several times, or has stopped.
    async fn until_waiter_exists(&self, kind: Lock, polls: &AtomicUsize, over: &AtomicBool) {
        let enough = if kind.needs_redis() { 3 } else { 1 };
        until("a waiter exists", async || {
            over.load(Ordering::SeqCst)
                || polls.load(Ordering::SeqCst) >= enough
                || self.servers[0].query::<i64>("ZCARD holdfast:lock:{a}:queue") > 0
        })
        .await;
    }
}

fn key() -> LockKey {
    LockKey::new("{a}").unwrap()
}

async fn acquire(locks: &ShopLocks, kind: Lock) -> Guards {
    let (keys, deadline) = ([key()], tokio::time::Instant::now() + MAX_RELEASE_TIME * 2);
    let (wait, ttl, keys) = (kind.wait_modes()[0], Some(LEASE), &keys);
    let (queue, probe) = (QueueOptions::default(), &Probe::Off);
    let (retry, max_hold, takes_mail) = (None, None, false);
    let request = LockRequest {
        lock: kind,
        wait,
        retry,
        ttl,
        max_hold,
        deadline,
        keys,
        queue,
        probe,
        takes_mail,
    };
    match locks.acquire(request).await.unwrap() {
        AcquireOutcome::Acquired(guards) => guards,
        other => panic!("{kind:?}: {other:?}"),
    }
}

/// Repeats `run` with a later cut each time, until it returns that it completed.
async fn for_each_cut(mut run: impl AsyncFnMut(Cut) -> bool) {
    for cut in Cut::all() {
        if run(cut).await {
            return;
        }
    }
    panic!("no run completes");
}

const KINDS: [Lock; 9] = [
    Lock::Local,
    Lock::Queue,
    Lock::Setnx,
    Lock::SetnxExpire,
    Lock::CheckThenDel,
    Lock::Owner,
    Lock::Watchdog,
    Lock::Redlock,
    Lock::Fenced,
];

#[tokio::test]
async fn cancelled_acquire_of_free_lock_leaves_none() {
    let mut test = TestLocks::new();
    for kind in KINDS {
        for_each_cut(async |cut| {
            let locks = test.here.clone();
            let acquired = cut.run(&AtomicUsize::new(0), acquire(&locks, kind)).await;
            test.release_acquired(acquired, kind, cut).await
        })
        .await;
        test.assert_no_keys_soon().await;
    }
}

#[tokio::test]
async fn cancelled_wait_leaves_no_lock() {
    let mut test = TestLocks::new();
    for kind in KINDS {
        for_each_cut(async |cut| {
            let held = acquire(test.other(kind), kind).await;
            test.assert_fence_grows(&held, cut);
            let (polls, over, locks) =
                (AtomicUsize::new(0), AtomicBool::new(false), test.here.clone());
            let waiter = async {
                let acquired = cut.run(&polls, acquire(&locks, kind)).await;
                over.store(true, Ordering::SeqCst);
                acquired
            };
            let release = async {
                test.until_waiter_exists(kind, &polls, &over).await;
                held.release().await
            };
            let (acquired, released) = futures_util::join!(waiter, release);
            assert_eq!(released, Released::Held, "{kind:?} {cut:?}");
            test.release_acquired(acquired, kind, cut).await
        })
        .await;
        test.assert_no_keys_soon().await;
    }
}

#[tokio::test]
async fn cancelled_release_is_completed() {
    let mut test = TestLocks::new();
    for kind in KINDS {
        for_each_cut(async |cut| {
            let held = acquire(&test.here, kind).await;
            test.assert_fence_grows(&held, cut);
            let released = cut.run(&AtomicUsize::new(0), held.release()).await;
            test.assert_free_soon(kind, cut).await;
            assert!(released.is_none_or(|released| released == Released::Held), "{kind:?} {cut:?}");
            released.is_some()
        })
        .await;
        test.assert_no_keys_soon().await;
    }
}

#[tokio::test]
async fn cancelled_refence_keeps_the_lock() {
    let mut test = TestLocks::new();
    for_each_cut(async |cut| {
        let mut held = acquire(&test.here, Lock::Fenced).await;
        test.assert_fence_grows(&held, cut);
        let floor = test.last_fence + 1_000;
        let refenced = cut.run(&AtomicUsize::new(0), held.raise_fence(&key(), floor)).await;
        // The lock is held in either case, and the next fence is above all earlier ones.
        let next = held.raise_fence(&key(), floor).await.unwrap().unwrap();
        assert!(next > floor, "{cut:?}: {next} after {floor}");
        test.last_fence = next;
        assert_eq!(held.release().await, Released::Held, "{cut:?}");
        test.assert_free_soon(Lock::Fenced, cut).await;
        refenced.is_some_and(|refenced| {
            assert!(refenced.unwrap().unwrap() > floor);
            true
        })
    })
    .await;
    test.assert_no_keys_soon().await;
}

fn is_acquired(results: &[Result<IdempotencyLockResult, Error>]) -> bool {
    matches!(results, [Ok(IdempotencyLockResult::Acquired)])
}

#[tokio::test]
async fn dropped_key_lock_calls_leave_no_lock() {
    let test = TestLocks::new();
    let keys = [("{alice:1}".to_owned(), "af".to_owned())];
    let acquire = async || {
        let mut locks = IdempotencyLocks::new(test.here.leases());
        assert!(is_acquired(&locks.acquire(&keys).await));
        locks
    };
    for_each_cut(async |cut| {
        let acquired = cut.run(&AtomicUsize::new(0), acquire()).await;
        let complete = acquired.is_some();
        drop(acquired);
        test.assert_no_keys_soon().await;
        complete
    })
    .await;
    for_each_cut(async |cut| {
        let mut held = acquire().await;
        let names = ["{alice:1}".to_owned()];
        let released = cut.run(&AtomicUsize::new(0), held.release(&names)).await;
        let complete = released.is_some();
        drop(held);
        test.assert_no_keys_soon().await;
        complete
    })
    .await;
    // A lock that a dropped call may have acquired does not block the next call for long.
    for_each_cut(async |cut| {
        let mut locks = IdempotencyLocks::new(test.here.leases());
        let acquired = cut.run(&AtomicUsize::new(0), locks.acquire(&keys)).await;
        let complete = acquired.is_some();
        if complete {
            locks.release(&["{alice:1}".to_owned()]).await;
        }
        let dropped = Instant::now();
        until("the lock is acquired", async || is_acquired(&locks.acquire(&keys).await)).await;
        assert!(dropped.elapsed() < KEY_LOCK_TTL, "{cut:?}: released, not expired");
        drop(locks);
        test.assert_no_keys_soon().await;
        complete
    })
    .await;
}
