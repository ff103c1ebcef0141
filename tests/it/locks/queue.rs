//! The guarantees of the queue: order, bound, no lost place, and no starvation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::poll;
use holdfast::locks::queue::{KeyQueues, QueueGuard};
use holdfast::locks::{Priority, QueueDeadlines, QueueFull, QueueOptions, WhenFull};
use holdfast_lock::{LockKey, Wait};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::runtime::Handle;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

type Waits = Pin<Box<dyn Future<Output = Result<Option<QueueGuard>, QueueFull>> + Send>>;

/// A queue, and those who come to it.
struct House {
    queues: KeyQueues,
    key: LockKey,
    places: usize,
}

impl House {
    fn of(places: usize) -> Self {
        let key = LockKey::new("{sku:tea}").unwrap();
        Self { queues: KeyQueues::new(Handle::current()), key, places }
    }

    fn comes(&self, wait: Wait, when_full: WhenFull, priority: Priority) -> Waits {
        let (queues, key, places) = (self.queues.clone(), self.key.clone(), self.places);
        let manner = QueueOptions { when_full, priority: Some(priority), capacity: Some(places) };
        let soon = Instant::now() + PATIENCE;
        let limits = manner.deadlines(soon, soon);
        Box::pin(async move { queues.acquire(&key, wait, &manner, limits).await })
    }

    fn joins(&self, when_full: WhenFull) -> Waits {
        self.comes(Wait::Notify, when_full, Priority::Normal)
    }

    async fn has_a_turn(&self) -> QueueGuard {
        self.joins(WhenFull::Fail).await.unwrap().unwrap()
    }

    /// In line, as soon as it was polled once.
    async fn waits(&self, when_full: WhenFull, priority: Priority) -> Waits {
        let mut waits = self.comes(Wait::Notify, when_full, priority);
        assert!(poll!(&mut waits).is_pending());
        waits
    }

    fn count(&self) -> (usize, usize) {
        self.queues
            .snapshots()
            .first()
            .map_or((0, 0), |look| (look.waiting, look.waiting_for_place))
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[tokio::test]
async fn waiters_are_served_in_order() {
    let house = House::of(8);
    let held = house.has_a_turn().await;
    let first = house.waits(WhenFull::Fail, Priority::Normal).await;
    let second = house.waits(WhenFull::Fail, Priority::Normal).await;
    let mut third = house.waits(WhenFull::Fail, Priority::Normal).await;
    drop(second);
    assert_eq!(house.count(), (2, 0), "who has gone leaves no hole");
    drop(held);
    let first = first.await.unwrap().unwrap();
    assert!(poll!(&mut third).is_pending(), "it is not its turn");
    drop(first);
    drop(third.await.unwrap().unwrap());
    assert!(house.is_empty());
}

#[tokio::test]
async fn full_queue_rejects_at_once() {
    let house = House::of(1);
    let held = house.has_a_turn().await;
    let waits = house.waits(WhenFull::Fail, Priority::Normal).await;
    for when_full in [WhenFull::Fail, WhenFull::Reject] {
        let mut no = house.joins(when_full);
        assert!(matches!(poll!(&mut no), std::task::Poll::Ready(Err(QueueFull))));
    }
    assert_eq!(house.count(), (1, 0));
    drop(held);
    assert!(waits.await.unwrap().is_some());
    assert!(house.is_empty());
}

#[tokio::test]
async fn outside_waiter_gets_a_freed_place() {
    let house = House::of(1);
    let held = house.has_a_turn().await;
    let inside = house.waits(WhenFull::Fail, Priority::Normal).await;
    let gone = house.waits(WhenFull::Wait, Priority::Normal).await;
    let mut outside = house.waits(WhenFull::Wait, Priority::Normal).await;
    assert_eq!(house.count(), (1, 2));
    drop(gone);
    assert_eq!(house.count(), (1, 1));
    drop(inside);
    assert!(poll!(&mut outside).is_pending());
    assert_eq!(house.count(), (1, 0), "the place of one who has gone is free at once");
    drop(held);
    assert!(outside.await.unwrap().is_some());
    assert!(house.is_empty());
}

#[tokio::test]
async fn offer_for_waits_at_most_its_time() {
    let house = House::of(1);
    let held = house.has_a_turn().await;
    let inside = house.waits(WhenFull::Fail, Priority::Normal).await;
    let (time, began) = (Duration::from_millis(50), Instant::now());
    let in_vain = house.joins(WhenFull::WaitFor(Some(time))).await.unwrap();
    assert!(in_vain.is_none());
    assert!(began.elapsed() >= time, "{:?}", began.elapsed());
    assert_eq!(house.count(), (1, 0));
    // Once inside, its turn may take longer.
    let mut offers = house.waits(WhenFull::WaitFor(Some(time)), Priority::Normal).await;
    drop(inside);
    assert!(tokio::time::timeout(2 * time, &mut offers).await.is_err(), "it is not its turn");
    drop(held);
    assert!(offers.await.unwrap().is_some());
}

#[tokio::test]
async fn restock_goes_first_in_own_places() {
    let house = House::of(1);
    let held = house.has_a_turn().await;
    let mut buyer = house.waits(WhenFull::Fail, Priority::Normal).await;
    let restock = house.waits(WhenFull::Fail, Priority::High).await;
    assert_eq!(house.count(), (2, 0), "a house full of buyers does not keep it out");
    drop(held);
    let restock = restock.await.unwrap().unwrap();
    assert!(poll!(&mut buyer).is_pending());
    drop(restock);
    assert!(buyer.await.unwrap().is_some());
}

#[tokio::test]
async fn try_succeeds_only_on_idle_queue() {
    let house = House::of(4);
    let trying = || house.comes(Wait::Try, WhenFull::Fail, Priority::Normal);
    let held = trying().await.unwrap().expect("nobody else is there");
    assert!(trying().await.unwrap().is_none(), "somebody has their turn");
    let waits = house.waits(WhenFull::Fail, Priority::Normal).await;
    drop(held);
    assert!(trying().await.unwrap().is_none(), "nobody goes before those who wait");
    drop(waits.await.unwrap().unwrap());
    drop(trying().await.unwrap().expect("they have gone"));
    assert!(house.is_empty());
}

#[tokio::test]
async fn timed_out_waiter_leaves_the_queue() {
    let house = House::of(4);
    let held = house.has_a_turn().await;
    let (manner, now) = (QueueOptions::default(), Instant::now());
    let limits = QueueDeadlines { place: now, service: now };
    let key = house.key.clone();
    let in_vain = house.queues.acquire(&key, Wait::Notify, &manner, limits).await;
    assert!(in_vain.unwrap().is_none());
    assert_eq!(house.count(), (0, 0));
    drop(held);
    assert!(house.joins(WhenFull::Fail).await.unwrap().is_some());
}

/// Callers with random options, many of which are cancelled: one at a time has its turn, no patient
/// caller starves, and the queue is empty in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_cancellations_starve_no_waiter() {
    for seed in 0..20 {
        let house = House::of(3);
        let inside = Arc::new(AtomicUsize::new(0));
        let mut rng = StdRng::seed_from_u64(seed);
        let mut crowd = Vec::new();
        for _ in 0..100 {
            let wait = if rng.random_bool(0.2) { Wait::Try } else { Wait::Notify };
            let when_full = match rng.random_range(0..4) {
                0 => WhenFull::Reject,
                1 => WhenFull::WaitFor(Some(Duration::from_micros(rng.random_range(0..3_000)))),
                _ => WhenFull::Wait,
            };
            let high = rng.random_bool(0.3);
            let priority = if high { Priority::High } else { Priority::Normal };
            let comes = house.comes(wait, when_full, priority);
            let gives_up = rng.random_bool(0.3).then(|| rng.random_range(0..3_000));
            let inside = inside.clone();
            crowd.push(tokio::spawn(async move {
                let turn = match gives_up {
                    Some(us) => tokio::time::timeout(Duration::from_micros(us), comes).await,
                    None => Ok(comes.await),
                };
                if let Ok(Ok(Some(_turn))) = &turn {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                let patient = gives_up.is_none() && when_full == WhenFull::Wait;
                let served = matches!(turn, Ok(Ok(Some(_))));
                assert!(served || !patient || wait == Wait::Try, "somebody was forgotten");
            }));
        }
        for one in crowd {
            one.await.unwrap();
        }
        assert!(house.is_empty(), "seed {seed}");
    }
}

#[tokio::test]
async fn request_without_time_gets_a_free_key() {
    let house = House::of(1);
    let options = QueueOptions::default();
    let now = Instant::now();
    let limits = options.deadlines(now, now);
    let acquire = || house.queues.acquire(&house.key, Wait::Notify, &options, limits);
    let held = acquire().await.unwrap();
    assert!(held.is_some());
    assert!(acquire().await.unwrap().is_none());
    drop(held);
    assert!(house.is_empty());
}

#[test]
fn put_waits_until_request_deadline() {
    let now = Instant::now();
    let (lock_timeout, deadline) = (now + PATIENCE, now + 2 * PATIENCE);
    let until = |when_full| {
        let limits =
            QueueOptions { when_full, ..QueueOptions::default() }.deadlines(deadline, lock_timeout);
        (limits.place, limits.service)
    };
    assert_eq!(until(WhenFull::Wait), (deadline, deadline));
    assert_eq!(until(WhenFull::WaitFor(None)), (lock_timeout, lock_timeout));
    assert_eq!(until(WhenFull::Fail), (lock_timeout, lock_timeout));
    let short = Duration::from_millis(300);
    let (place, turn) = until(WhenFull::WaitFor(Some(short)));
    assert!(now + short <= place && place < lock_timeout && turn == lock_timeout);
    assert_eq!(until(WhenFull::WaitFor(Some(3 * PATIENCE))), (deadline, deadline));
}
