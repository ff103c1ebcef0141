//! A payment concurrent with expiry: one of the two wins, and stock and money agree.

use futures_util::future::join_all;
use holdfast_testkit::{Sent, TestShop, User, until};
use serde_json::json;

use crate::order_expiry::JOBS_ON;

/// Pauses a payment before its commit. Returns the pending response and the id of the request.
async fn pause_payment(shop: &TestShop, user: &User, order: &str) -> (Sent, String) {
    let pay = user.pays(order).pause("commit").send();
    (pay, shop.until_worker_paused(0, "commit").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_in_its_transaction_wins_over_expiry() {
    let shop = TestShop::start_with(1, &[JOBS_ON, ("HOLDFAST_LOCK", "row-lock")]).await;
    let alice = shop.promoted("alice").await;
    let order = shop.place_expiring_order(&alice, 0, "deadbolt", 1_500).await;
    let (pay, paying) = pause_payment(&shop, &alice, &order).await;
    until("the order is due", async || {
        shop.number("select count(*) from orders where expires_at < now()").await == 1
    })
    .await;
    // Other orders expire meanwhile: the worker does not wait for the row.
    shop.place_expiring_order(&alice, 0, "deadbolt", 1).await;
    until("another order has expired", async || shop.expiry_entries().await == 1).await;
    shop.resume_paused(0, &paying).await;
    pay.ok().await;
    shop.configure_worker(0, json!({ "pause": "claimed" })).await;
    shop.place_expiring_order(&alice, 0, "deadbolt", 1).await;
    let worker = shop.until_worker_paused(0, "claimed").await;
    shop.resume_paused(0, &worker).await;
    shop.until_no_order_is_pending().await;
    let status = alice.order(&order).await;
    assert_eq!(status["status"], "paid");
    assert_eq!(shop.stock("deadbolt").await, 39);
    assert_eq!(alice.reads("/api/me").await["balance_cents"], 95_100);
    shop.assert_sound().await;
}

/// Without a transaction a payment locks nothing before its write, so the order expires first.
#[tokio::test(flavor = "multi_thread")]
async fn payment_before_its_write_loses_to_expiry() {
    for strategy in ["batched", "fenced"] {
        let shop = TestShop::start_with(1, &[JOBS_ON, ("HOLDFAST_LOCK", strategy)]).await;
        let alice = shop.promoted("alice").await;
        let order = shop.place_expiring_order(&alice, 0, "deadbolt", 1_500).await;
        let (pay, paying) = pause_payment(&shop, &alice, &order).await;
        until("the order has expired", async || shop.expiry_entries().await == 1).await;
        shop.resume_paused(0, &paying).await;
        pay.fails(409, "order-expired").await;
        assert_eq!(alice.reads("/api/me").await["balance_cents"], 100_000, "{strategy}");
        assert_eq!(shop.stock("deadbolt").await, 40, "{strategy}");
        shop.assert_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_during_expiry_is_rejected() {
    for strategy in ["batched", "fenced", "row-lock"] {
        let shop = TestShop::start_with(1, &[JOBS_ON, ("HOLDFAST_LOCK", strategy)]).await;
        let alice = shop.promoted("alice").await;
        shop.configure_worker(0, json!({ "pause": "commit" })).await;
        let order = shop.place_expiring_order(&alice, 0, "deadbolt", 1).await;
        let worker = shop.until_worker_paused(0, "commit").await;
        let pay = alice.pays(&order).send();
        // Without a transaction nothing is locked: the payment reads that the order has expired.
        until("the payment waits for the order's row", async || {
            if strategy != "row-lock" {
                return true;
            }
            shop.waiting_sessions().await == 1
        })
        .await;
        shop.resume_paused(0, &worker).await;
        until("it has expired", async || shop.expiry_entries().await == 1).await;
        pay.fails(409, "order-expired").await;
        assert_eq!(alice.reads("/api/me").await["balance_cents"], 100_000, "{strategy}");
        assert_eq!(shop.stock("deadbolt").await, 40, "{strategy}");
        shop.assert_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_and_expiry_exclude_each_other() {
    let shop = TestShop::start_with(2, &[JOBS_ON]).await;
    let alice = shop.promoted("alice").await;
    let sku = shop.shop_item(1_000, 100).await;
    // They expire one after the other, from before the first payment to after the last one.
    let hold_ms = |n: usize| 700 + 10 * n as u64;
    let orders = (0..60).map(|n| shop.place_expiring_order(&alice, n % 2, &sku, hold_ms(n)));
    let orders = join_all(orders).await;
    until("the first order has expired", async || shop.expiry_entries().await > 0).await;

    let payments = orders.iter().enumerate().map(async |(n, order)| {
        let pay = alice.at((n + 1) % 2).pays(order);
        let mut paid = pay.clone().await;
        // On a busy machine some time out waiting for the account.
        while paid.status == 503 {
            paid = pay.clone().await;
        }
        if paid.status == 200 {
            return 1;
        }
        paid.fails(409, "order-expired");
        0
    });
    let paid: i64 = join_all(payments).await.into_iter().sum();
    shop.until_no_order_is_pending().await;
    println!("{paid} of 60 were paid in time");
    assert_eq!(shop.number("select count(*) from orders where status = 'paid'").await, paid);
    assert_eq!(shop.expiry_entries().await, 60 - paid);
    assert_eq!(shop.stock(&sku).await, 1_000 - paid);
    assert_eq!(alice.reads("/api/me").await["balance_cents"], 100_000 - 100 * paid);
    shop.assert_sound().await;
}
