//! The guarantees of the queue: order, bound, no lost place, no starvation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::poll;
use holdfast_lock::{LockKey, Wait};
use holdfast_shop::locks::queue_lock::{KeyQueues, QueueGuard};
use holdfast_shop::locks::{Priority, QueueDeadlines, QueueOptions, WhenFull};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(20);

type Acquiring =
    Pin<Box<dyn Future<Output = Result<Option<QueueGuard>, holdfast_lock::Error>> + Send>>;

struct TestQueue {
    queues: KeyQueues,
    key: LockKey,
    capacity: usize,
}

impl TestQueue {
    fn new(capacity: usize) -> Self {
        let key = LockKey::new("{sku:tea}").unwrap();
        Self { queues: KeyQueues::default(), key, capacity }
    }

    fn acquire(&self, wait: Wait, when_full: WhenFull, priority: Priority) -> Acquiring {
        let (queues, key, capacity) = (self.queues.clone(), self.key.clone(), self.capacity);
        let options =
            QueueOptions { when_full, priority: Some(priority), capacity: Some(capacity) };
        let deadline = Instant::now() + TIMEOUT;
        let limits = options.deadlines(deadline, deadline);
        Box::pin(async move { queues.acquire(&key, wait, &options, limits).await })
    }

    fn join(&self, when_full: WhenFull) -> Acquiring {
        self.acquire(Wait::Notify, when_full, Priority::Normal)
    }

    async fn acquire_free(&self) -> QueueGuard {
        self.join(WhenFull::Fail).await.unwrap().unwrap()
    }

    /// In the queue after the first poll.
    async fn enqueue(&self, when_full: WhenFull, priority: Priority) -> Acquiring {
        let mut waiter = self.acquire(Wait::Notify, when_full, priority);
        assert!(poll!(&mut waiter).is_pending());
        waiter
    }

    fn lengths(&self) -> (usize, usize) {
        self.queues
            .snapshots()
            .first()
            .map_or((0, 0), |queue| (queue.waiting, queue.waiting_for_place))
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[tokio::test]
async fn waiter_for_a_place_gets_a_freed_one() {
    let queue = TestQueue::new(1);
    let held = queue.acquire_free().await;
    let inside = queue.enqueue(WhenFull::Fail, Priority::Normal).await;
    let cancelled = queue.enqueue(WhenFull::Wait, Priority::Normal).await;
    let mut outside = queue.enqueue(WhenFull::Wait, Priority::Normal).await;
    assert_eq!(queue.lengths(), (1, 2));
    drop(cancelled);
    assert_eq!(queue.lengths(), (1, 1));
    drop(inside);
    assert!(poll!(&mut outside).is_pending());
    assert_eq!(queue.lengths(), (1, 0), "a cancelled waiter frees its place");
    drop(held);
    assert!(outside.await.unwrap().is_some());
    assert!(queue.is_empty());
}

#[tokio::test]
async fn offer_for_waits_at_most_its_time() {
    let queue = TestQueue::new(1);
    let held = queue.acquire_free().await;
    let inside = queue.enqueue(WhenFull::Fail, Priority::Normal).await;
    let (time, began) = (Duration::from_millis(50), Instant::now());
    let timed_out = queue.join(WhenFull::WaitFor(Some(time))).await.unwrap();
    assert!(timed_out.is_none());
    assert!(began.elapsed() >= time, "{:?}", began.elapsed());
    assert_eq!(queue.lengths(), (1, 0));
    // Once it has a place, it may wait longer for the lock.
    let mut waiter = queue.enqueue(WhenFull::WaitFor(Some(time)), Priority::Normal).await;
    drop(inside);
    assert!(tokio::time::timeout(2 * time, &mut waiter).await.is_err(), "the lock is held");
    drop(held);
    assert!(waiter.await.unwrap().is_some());
}

#[tokio::test]
async fn try_succeeds_only_on_idle_queue() {
    let queue = TestQueue::new(4);
    let trying = || queue.acquire(Wait::Try, WhenFull::Fail, Priority::Normal);
    let held = trying().await.unwrap().expect("the queue is idle");
    assert!(trying().await.unwrap().is_none(), "the lock is held");
    let waiter = queue.enqueue(WhenFull::Fail, Priority::Normal).await;
    drop(held);
    assert!(trying().await.unwrap().is_none(), "no caller overtakes a waiter");
    drop(waiter.await.unwrap().unwrap());
    drop(trying().await.unwrap().expect("the queue is idle again"));
    assert!(queue.is_empty());
}

#[tokio::test]
async fn timed_out_waiter_leaves_the_queue() {
    let queue = TestQueue::new(4);
    let held = queue.acquire_free().await;
    let (options, now) = (QueueOptions::default(), Instant::now());
    let limits = QueueDeadlines { place: now, service: now };
    let key = queue.key.clone();
    let timed_out = queue.queues.acquire(&key, Wait::Notify, &options, limits).await;
    assert!(timed_out.unwrap().is_none());
    assert_eq!(queue.lengths(), (0, 0));
    drop(held);
    assert!(queue.join(WhenFull::Fail).await.unwrap().is_some());
}

/// Callers with random options, many of which are cancelled: one at a time holds the lock, no
/// waiter starves, and the queue is empty in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_cancellations_starve_no_waiter() {
    for seed in 0..20 {
        let queue = TestQueue::new(3);
        let inside = Arc::new(AtomicUsize::new(0));
        let mut rng = StdRng::seed_from_u64(seed);
        let mut callers = Vec::new();
        for _ in 0..100 {
            let wait = if rng.random_bool(0.2) { Wait::Try } else { Wait::Notify };
            let when_full = match rng.random_range(0..4) {
                0 => WhenFull::Reject,
                1 => WhenFull::WaitFor(Some(Duration::from_micros(rng.random_range(0..3_000)))),
                _ => WhenFull::Wait,
            };
            let high = rng.random_bool(0.3);
            let priority = if high { Priority::High } else { Priority::Normal };
            let acquiring = queue.acquire(wait, when_full, priority);
            let cancel_after_us = rng.random_bool(0.3).then(|| rng.random_range(0..3_000));
            let inside = inside.clone();
            callers.push(tokio::spawn(async move {
                let result = match cancel_after_us {
                    Some(us) => tokio::time::timeout(Duration::from_micros(us), acquiring).await,
                    None => Ok(acquiring.await),
                };
                if let Ok(Ok(Some(_guard))) = &result {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one holder at a time");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                let waits = cancel_after_us.is_none() && when_full == WhenFull::Wait;
                let served = matches!(result, Ok(Ok(Some(_))));
                assert!(served || !waits || wait == Wait::Try, "a waiter starved");
            }));
        }
        for caller in callers {
            caller.await.unwrap();
        }
        assert!(queue.is_empty(), "seed {seed}");
    }
}

#[tokio::test]
async fn request_without_time_gets_a_free_key() {
    let queue = TestQueue::new(1);
    let options = QueueOptions::default();
    let now = Instant::now();
    let limits = options.deadlines(now, now);
    let acquire = || queue.queues.acquire(&queue.key, Wait::Notify, &options, limits);
    let held = acquire().await.unwrap();
    assert!(held.is_some());
    assert!(acquire().await.unwrap().is_none());
    drop(held);
    assert!(queue.is_empty());
}

#[test]
fn put_waits_until_request_deadline() {
    let now = Instant::now();
    let (lock_timeout, deadline) = (now + TIMEOUT, now + 2 * TIMEOUT);
    let until = |when_full| {
        let limits =
            QueueOptions { when_full, ..QueueOptions::default() }.deadlines(deadline, lock_timeout);
        (limits.place, limits.service)
    };
    assert_eq!(until(WhenFull::Wait), (deadline, deadline));
    assert_eq!(until(WhenFull::WaitFor(None)), (lock_timeout, lock_timeout));
    assert_eq!(until(WhenFull::Fail), (lock_timeout, lock_timeout));
    let short = Duration::from_millis(300);
    let (place, service) = until(WhenFull::WaitFor(Some(short)));
    assert!(now + short <= place && place < lock_timeout && service == lock_timeout);
    assert_eq!(until(WhenFull::WaitFor(Some(3 * TIMEOUT))), (deadline, deadline));
}
