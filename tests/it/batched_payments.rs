//! `batched`: payments of one account, and concurrent commands of all kinds on the same items.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use holdfast_checker::{self as checker, ObservedOutcome};
use holdfast_shop::{OrderId, UserId};
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::observer::RequestRecorder;
use holdfast_testkit::{TestShop, fresh_key};

/// Cents on a demo user's account.
const BALANCE: i64 = 100_000;

/// Longer than any request takes.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

async fn pending(observer: &RequestRecorder<'_>, sku: &str, many: usize) -> Vec<OrderId> {
    let placed = (0..many).map(|n| {
        // All orders are alice's.
        let lines = [(sku, 1)];
        async move { observer.place(3 * n, &fresh_key(), &lines, |it| it, None).await }
    });
    let placed = join_all(placed).await;
    placed.iter().map(|placed| placed.order().unwrap()).collect()
}

#[tokio::test]
async fn concurrent_payments_never_overdraw_account() {
    const PRICE: i64 = 3_900;
    let shop = TestShop::start(2).await;
    let observer = RequestRecorder::of(&shop).await;
    let alice = observer.users[0].1.0;
    let sku = shop.shop_item(100, PRICE).await;
    let orders = pending(&observer, &sku, 40).await;
    shop.until_keys_expired().await;
    let mut barrier = Barrier::before(&shop, &format!("{{user:{alice}}}")).await;
    let payments = join_all((0..40).map(|n| observer.pay(3 * n, orders[n])));
    let opened = async {
        barrier.until_queued(40).await;
        barrier.open().await;
    };
    let (payments, ()) = futures_util::join!(payments, opened);
    let left = BALANCE - 25 * PRICE;
    let short =
        ObservedOutcome::Insufficient { key: alice.to_string(), requested: PRICE, available: left };
    let paid = payments.iter().filter(|paid| matches!(paid, ObservedOutcome::Done { .. })).count();
    let rejected = payments.iter().filter(|paid| **paid == short).count();
    assert_eq!((paid, rejected), (25, 15), "{payments:#?}");
    assert_eq!(
        shop.number(
            "select count(distinct xmin::text) from balance_ledger where order_id is not null"
        )
        .await,
        2,
        "a batch per replica",
    );
    observer.assert_consistent(0, &[&sku]).await;
}

#[tokio::test]
async fn order_is_paid_once_under_two_keys() {
    let shop = TestShop::start(2).await;
    let observer = RequestRecorder::of(&shop).await;
    let (alice, UserId(user)) = observer.users[0].clone();
    let sku = shop.shop_item(10, 100).await;
    // Both keys in one batch, and in one of each replica.
    for (order, replicas) in pending(&observer, &sku, 2).await.into_iter().zip([[0, 0], [0, 1]]) {
        shop.until_keys_expired().await;
        let mut barrier = Barrier::before(&shop, &format!("{{user:{user}}}")).await;
        let sent = replicas.map(|at| alice.at(at).pays(order).send());
        barrier.until_queued(2).await;
        barrier.open().await;
        let mut responses = Vec::new();
        for sent in sent {
            responses.push(sent.await);
        }
        responses.sort_by_key(|response| response.status);
        let [paid, rejected] = responses.try_into().unwrap();
        paid.succeeds(200);
        assert_eq!(rejected.fails(409, "order-state")["order_status"], "paid");
    }
    assert_eq!(alice.reads("/api/me").await["balance_cents"], BALANCE - 200);
    shop.assert_sound().await;
}

/// One customer of two items: orders of one and of both, payments and cancellations.
async fn journey(observer: &RequestRecorder<'_>, n: usize, hot: &str, other: &str) {
    let lines: &[(&str, i64)] = match n % 4 {
        0 => &[(hot, 1), (other, 1)],
        1 => &[(other, 2)],
        _ => &[(hot, 1)],
    };
    let placed = observer.place(n, &fresh_key(), lines, |it| it, Some(REQUEST_TIMEOUT)).await;
    let ObservedOutcome::Done { order, .. } = placed else { return };
    match n % 5 {
        0 => observer.act_unobserved(n, order, "cancel").await,
        1 => {
            observer.pay(n, order).await;
            observer.act_unobserved(n + 3, order, "refund").await;
        }
        2 | 3 => drop(observer.pay(n, order).await),
        _ => {}
    }
}

#[tokio::test]
async fn batches_coexist_with_all_other_commands() {
    let shop = TestShop::start(2).await;
    let observer = RequestRecorder::of(&shop).await;
    let admin = shop.sign_in("admin").await;
    let (hot, other) = (shop.shop_item(60, 100).await, shop.shop_item(60, 100).await);
    let restocks = async {
        for n in 0..30 {
            let sku = if n % 2 == 0 { &hot } else { &other };
            admin.at(n / 2 % 2).restocks(sku, 2).ok().await;
        }
    };
    let customers =
        stream::iter(0..400).for_each_concurrent(16, |n| journey(&observer, n, &hot, &other));
    futures_util::join!(restocks, customers);
    // No request timed out.
    let has_failed = |outcome: &ObservedOutcome| {
        matches!(outcome, ObservedOutcome::Unknown | ObservedOutcome::Rejected)
    };
    assert_eq!(observer.count(has_failed), 0);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(shop.number(deadlocks).await, 0);
    shop.until_no_locks_are_held(0).await;
    shop.assert_sound().await;
    let (recorded, seen) = observer.history(&[&hot, &other]).await;
    let found = checker::check(&recorded, &seen);
    assert!(found.is_empty(), "{found:#?}");
    let sold = recorded.entries.iter().filter(|entry| entry.reason == "order").count();
    let is_return = |reason: &str| ["cancel", "refund"].contains(&reason);
    let returns = recorded.entries.iter().filter(|entry| is_return(&entry.reason));
    assert!(sold > 80 && returns.count() > 20, "{sold}");
}
