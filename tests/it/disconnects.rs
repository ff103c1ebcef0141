//! A client that disconnects while it waits leaves the queue and releases its key at once, not when
//! it gets the lock.
//!
//! The other waiters arrived earlier and are served: if the wait had ended by its timeout, theirs
//! would have ended first.

use holdfast_testkit::TestShop;
use holdfast_testkit::barrier::InFlightRequests;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_client_leaves_the_lock_queue() {
    for strategy in ["local", "queue", "owner", "fenced"] {
        let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK", strategy)]).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(10).await;
        let mut in_flight = InFlightRequests::of(&shop).await;
        let first = shop.pause(&admin, alice.orders(&sku, 1), "held").await;

        // Each holds its key lock while it waits.
        let mut waiting = Vec::new();
        for place in 2..=5 {
            waiting.push(alice.orders(&sku, 1).send());
            in_flight.until(place, &format!("{strategy}: {place} are queued")).await;
        }
        for disconnecting in waiting.split_off(2) {
            disconnecting.abort();
        }
        in_flight.until(3, &format!("{strategy}: two have left")).await;

        shop.resume(&admin, first).await.ok();
        for remaining in waiting {
            remaining.succeeds(201).await;
        }
        let audit = shop.item_audit(&sku).await;
        assert_eq!((&audit["ok"], &audit["sold"]), (&json!(true), &json!(3)), "{strategy}");
        in_flight.until(0, &format!("{strategy}: no key lock is left")).await;
    }
}
