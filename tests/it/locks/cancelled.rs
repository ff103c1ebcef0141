//! Futures that are dropped at every await point there is: nothing stays locked, nothing is jammed.
//!
//! The lease is so long that a lock which is free again was released, and did not expire. One
//! thread only: no response arrives while a future is polled, so that no run completes early by
//! luck.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast::locks::{Lock, LockRequest, QueueOptions, ShopLocks};
use holdfast::probe::Probe;
use holdfast_lock::{
    AcquireOutcome, Error, Guards, IdempotencyLockResult, IdempotencyLocks, LockKey,
};
use holdfast_lock::{Redis, Released, Settings};

use crate::common::cut::Cut;
use crate::server::{Server, until};

const LEASE: Duration = Duration::from_secs(60);
/// Time after which the lock of an idempotency key expires.
const KEY_LOCK_TTL: Duration = Duration::from_secs(3);
/// "Soon", on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// A Redis with the nodes of a majority beside it, and two processes' locks on them.
struct World {
    servers: Vec<Server>,
    here: ShopLocks,
    there: ShopLocks,
    last_fence: i64,
}

impl World {
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

    /// The process beside `here`; for a lock in one process there is none.
    fn beside(&self, kind: Lock) -> &ShopLocks {
        if kind.needs_redis() { &self.there } else { &self.here }
    }

    /// It is free again soon, and the next fence is larger.
    async fn is_free_soon(&mut self, kind: Lock, cut: Cut) {
        let started = Instant::now();
        let guards = take(self.beside(kind), kind).await;
        assert!(started.elapsed() < SOON, "{kind:?} {cut:?}: {:?}", started.elapsed());
        self.grows(&guards, cut);
        guards.release().await;
    }

    /// Releases what a run took, if it completed, and waits until the lock is free. Returns whether
    /// it completed.
    async fn release_taken(&mut self, taken: Option<Guards>, kind: Lock, cut: Cut) -> bool {
        let complete = taken.is_some();
        if let Some(guards) = taken {
            self.grows(&guards, cut);
            guards.release().await;
        }
        self.is_free_soon(kind, cut).await;
        complete
    }

    fn grows(&mut self, guards: &Guards, cut: Cut) {
        if let Some(fence) = guards.fence(&key()) {
            assert!(fence > self.last_fence, "{cut:?}: {fence} after {}", self.last_fence);
            self.last_fence = fence;
        }
    }

    async fn is_empty_soon(&self) {
        until("no key is left", async || {
            self.servers.iter().all(|server| server.keys_left().is_empty())
        })
        .await;
    }

    /// Returns when somebody stands in line, or has tried for a while, or has stopped.
    async fn somebody_waits(&self, kind: Lock, polls: &AtomicUsize, over: &AtomicBool) {
        let enough = if kind.needs_redis() { 3 } else { 1 };
        until("somebody waits", async || {
            over.load(Ordering::SeqCst)
                || polls.load(Ordering::SeqCst) >= enough
                || self.servers[0].ask::<i64>("ZCARD holdfast:lock:{a}:queue") > 0
        })
        .await;
    }
}

fn key() -> LockKey {
    LockKey::new("{a}").unwrap()
}

async fn take(locks: &ShopLocks, kind: Lock) -> Guards {
    let (keys, deadline) = ([key()], tokio::time::Instant::now() + SOON * 2);
    let (wait, ttl, keys) = (kind.wait_modes()[0], Some(LEASE), &keys);
    let (queue, probe) = (QueueOptions::default(), &Probe::Off);
    let request = LockRequest { lock: kind, wait, ttl, deadline, keys, queue, probe };
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
    let mut world = World::new();
    for kind in KINDS {
        for_each_cut(async |cut| {
            let locks = world.here.clone();
            let taken = cut.run(&AtomicUsize::new(0), take(&locks, kind)).await;
            world.release_taken(taken, kind, cut).await
        })
        .await;
        world.is_empty_soon().await;
    }
}

#[tokio::test]
async fn cancelled_wait_leaves_no_lock() {
    let mut world = World::new();
    for kind in KINDS {
        for_each_cut(async |cut| {
            let held = take(world.beside(kind), kind).await;
            world.grows(&held, cut);
            let (polls, over, locks) =
                (AtomicUsize::new(0), AtomicBool::new(false), world.here.clone());
            let waits = async {
                let taken = cut.run(&polls, take(&locks, kind)).await;
                over.store(true, Ordering::SeqCst);
                taken
            };
            let gives_back = async {
                world.somebody_waits(kind, &polls, &over).await;
                held.release().await
            };
            let (taken, released) = futures_util::join!(waits, gives_back);
            assert_eq!(released, Released::Held, "{kind:?} {cut:?}");
            world.release_taken(taken, kind, cut).await
        })
        .await;
        world.is_empty_soon().await;
    }
}

#[tokio::test]
async fn cancelled_release_is_completed() {
    let mut world = World::new();
    for kind in KINDS {
        for_each_cut(async |cut| {
            let held = take(&world.here, kind).await;
            world.grows(&held, cut);
            let released = cut.run(&AtomicUsize::new(0), held.release()).await;
            world.is_free_soon(kind, cut).await;
            assert!(released.is_none_or(|released| released == Released::Held), "{kind:?} {cut:?}");
            released.is_some()
        })
        .await;
        world.is_empty_soon().await;
    }
}

#[tokio::test]
async fn cancelled_refence_keeps_the_lock() {
    let mut world = World::new();
    for_each_cut(async |cut| {
        let mut held = take(&world.here, Lock::Fenced).await;
        world.grows(&held, cut);
        let floor = world.last_fence + 1_000;
        let refenced = cut.run(&AtomicUsize::new(0), held.raise_fence(&key(), floor)).await;
        // Taken or not, the lock is held, and the next number is above every one before it.
        let next = held.raise_fence(&key(), floor).await.unwrap().unwrap();
        assert!(next > floor, "{cut:?}: {next} after {floor}");
        world.last_fence = next;
        assert_eq!(held.release().await, Released::Held, "{cut:?}");
        world.is_free_soon(Lock::Fenced, cut).await;
        refenced.is_some_and(|refenced| {
            assert!(refenced.unwrap().unwrap() > floor);
            true
        })
    })
    .await;
    world.is_empty_soon().await;
}

fn is_acquired(results: &[Result<IdempotencyLockResult, Error>]) -> bool {
    matches!(results, [Ok(IdempotencyLockResult::Acquired)])
}

#[tokio::test]
async fn dropped_key_lock_calls_leave_no_lock() {
    let world = World::new();
    let wanted = [("{alice:1}".to_owned(), "af".to_owned())];
    let acquire = async || {
        let mut locks = IdempotencyLocks::new(world.here.leases());
        assert!(is_acquired(&locks.acquire(&wanted).await));
        locks
    };
    for_each_cut(async |cut| {
        let acquired = cut.run(&AtomicUsize::new(0), acquire()).await;
        let complete = acquired.is_some();
        drop(acquired);
        world.is_empty_soon().await;
        complete
    })
    .await;
    for_each_cut(async |cut| {
        let mut held = acquire().await;
        let names = ["{alice:1}".to_owned()];
        let released = cut.run(&AtomicUsize::new(0), held.release(&names)).await;
        let complete = released.is_some();
        drop(held);
        world.is_empty_soon().await;
        complete
    })
    .await;
    // What a dropped call may have set does not stay in the way of the next one.
    for_each_cut(async |cut| {
        let mut locks = IdempotencyLocks::new(world.here.leases());
        let acquired = cut.run(&AtomicUsize::new(0), locks.acquire(&wanted)).await;
        let complete = acquired.is_some();
        if complete {
            locks.release(&["{alice:1}".to_owned()]).await;
        }
        let dropped = Instant::now();
        until("it is ours", async || is_acquired(&locks.acquire(&wanted).await)).await;
        assert!(dropped.elapsed() < KEY_LOCK_TTL, "{cut:?}: released, not expired");
        drop(locks);
        world.is_empty_soon().await;
        complete
    })
    .await;
}
