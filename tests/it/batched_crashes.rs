//! `batched` while a replica is terminated, paused or killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use holdfast_checker::ObservedOutcome;
use holdfast_testkit::barrier::{Barrier, InFlightRequests};
use holdfast_testkit::observer::RequestRecorder;
use holdfast_testkit::{BUSY_MACHINE, Call, LEASE, TestShop, fresh_key, until};

use crate::batched_faults::REQUEST_TIMEOUT;
use crate::delegation::unanswered;

/// More than the test sells.
const LARGE_STOCK: i64 = 1_000_000;

/// Pauses a batch of replica 0 at that point: twenty-five orders, the first of which is paused.
/// Waits for `paused`, and returns the requests in flight.
async fn pause_batch_at<'a>(
    observer: &'a RequestRecorder<'a>,
    sku: &'a str,
    point: &'static str,
    paused: impl Future<Output = ()>,
) -> impl Future<Output = ()> + 'a {
    let shop = observer.shop;
    let mut barrier = Barrier::before_idle_item(shop, sku).await;
    let buyers = (0..25).map(move |n| async move {
        let key = format!("batch-{}", fresh_key());
        // An even number: sent to replica 0.
        let n = 2 * n;
        let with_pause = |it: Call| match n {
            0 => it.pause(point),
            _ => it,
        };
        let outcome = observer.place(n, &key, &[(sku, 1)], with_pause, Some(REQUEST_TIMEOUT)).await;
        if !matches!(outcome, ObservedOutcome::Done { .. }) {
            observer.buy(n + 3, &key, &[(sku, 1)], REQUEST_TIMEOUT).await;
        }
    });
    let mut buyers = Box::pin(async move { drop(join_all(buyers).await) });
    let pausing = async {
        barrier.until_queued(25).await;
        barrier.open().await;
        paused.await;
    };
    tokio::select! {
        () = &mut buyers => panic!("no request was paused"),
        () = pausing => buyers,
    }
}

/// Pauses replica 0 at a point of a batch. The other replica sells the item after one lease; the
/// late write is rejected or was executed, once.
async fn check_paused_at(shop: TestShop, point: &'static str) {
    let observer = RequestRecorder::of(&shop).await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(LARGE_STOCK, 100).await;
    let batch =
        pause_batch_at(&observer, &sku, point, shop.until_paused_count(&admin, 1, point)).await;
    let has_responses = AtomicBool::new(false);
    let batch = async {
        batch.await;
        has_responses.store(true, Ordering::Release);
    };
    let before = shop.number("select count(*) from orders").await;
    shop.replicas[0].pause();
    let paused = Instant::now();
    let others = async {
        let buy = async |n: usize| {
            let outcome =
                observer.buy(2 * n + 1, &fresh_key(), &[(sku.as_str(), 1)], REQUEST_TIMEOUT).await;
            assert!(matches!(outcome, ObservedOutcome::Done { .. }), "{outcome:?}");
        };
        buy(0).await;
        let gap = paused.elapsed();
        assert!(gap < LEASE + BUSY_MACHINE, "nothing was sold for {gap:?}");
        stream::iter(1..40).for_each_concurrent(20, buy).await;
        assert_eq!(shop.number("select count(*) from orders").await, before + 40);
        shop.replicas[0].resume();
        // Again after each retry of the batch.
        until("the batch has responses", async || {
            for held in shop.paused_requests(&admin, 0).await {
                shop.resume_request(&admin, 0, &held.request).await;
            }
            has_responses.load(Ordering::Acquire)
        })
        .await;
    };
    futures_util::join!(batch, others);
    assert_eq!(shop.number("select count(*) from orders").await, 65);
    observer.assert_consistent(1, &[&sku]).await;
}

#[tokio::test]
async fn paused_replica_blocks_for_one_lease() {
    TestShop::check_each(["read", "commit", "committed"], &[], check_paused_at).await;
}

/// Two thousand buyers request a hundred units. A replica is killed while it executes a batch,
/// before or after the commit.
async fn check_kill_during_sale(committed: bool) {
    const STOCK: i64 = 100;
    const BUYERS: usize = 2_000;
    let shop = TestShop::start(2).await;
    let observer = RequestRecorder::of(&shop).await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(STOCK, 100).await;
    let buy = async |n: usize| observer.buy(n, &fresh_key(), &[(&sku, 1)], REQUEST_TIMEOUT).await;
    // Half is sold, …
    join_all((0..50).map(buy)).await;
    // … a quarter is in a transaction, …
    let paused = async {
        if committed {
            until("it is committed", async || {
                shop.number("select count(*) from orders").await == 75
            })
            .await;
        } else {
            shop.until_paused_count(&admin, 1, "commit").await;
        }
    };
    let point = if committed { "committed" } else { "commit" };
    let batch = pause_batch_at(&observer, &sku, point, paused).await;
    // … and the other buyers send their orders.
    let others = stream::iter(0..BUYERS - 75).for_each_concurrent(128, |n| {
        let outcome = buy(n);
        async { drop(outcome.await) }
    });
    let crash = async {
        // The requests at the live replica: the other one accepts no more. What it has forwarded
        // is in the queue of the paused one, and has no key lock.
        let mut in_flight = InFlightRequests::of(&shop).await;
        until("others are queued", async || {
            in_flight.count().await + unanswered(&shop, 1).await as usize >= 25 + 64
        })
        .await;
        shop.replicas[0].send_kill();
    };
    futures_util::join!(batch, others, crash);
    let sold = observer.count(|it| matches!(it, ObservedOutcome::Done { replayed: false, .. }));
    assert!(i64::try_from(sold).unwrap() <= STOCK, "{sold} were sold");
    assert_eq!(shop.number("select count(*) from orders").await, STOCK);
    let audit = shop.item_audit_at(1, &sku).await;
    for (what, many) in [("sold", STOCK), ("stock", 0), ("oversold", 0), ("drift", 0)] {
        assert_eq!(audit[what], many, "{audit:#}");
    }
    observer.assert_consistent(1, &[&sku]).await;
}

#[tokio::test]
async fn killed_replica_never_oversells() {
    check_kill_during_sale(false).await;
}

#[tokio::test]
async fn kill_after_commit_never_oversells() {
    check_kill_during_sale(true).await;
}
