//! A client that hangs up while it waits has left its line and its token at once, not when its
//! turn has come.
//!
//! The others in the line came before, and are served in the end: had the wait been over because
//! its time was, theirs would have been over first.

use holdfast::jobs::unpaid::queue_of;
use holdfast::lock::Redis;
use reqwest::StatusCode;
use serde_json::json;

use crate::common::{Shop, body, services, until};
use crate::holds::held;
use crate::queue::{Line, answer, fresh_key, keyed, send};
use crate::unpaid::JOBS;

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_client_leaves_the_lock_queue() {
    for strategy in ["local", "queue", "owner", "fenced"] {
        let shop = Shop::start_with(1, &[("HOLDFAST_LOCK", strategy)]).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(10).await;
        let mut line = Line::of(&shop).await;
        let order = || keyed(&shop, &alice, 0, &fresh_key(), &sku, 1);
        let (id, first) = held(order(), "held");
        let first = send(first);
        shop.until_held(&admin, 0, id, "held").await;
        // Each has its token while it waits.
        let mut waiting = Vec::new();
        for place in 2..=5 {
            waiting.push(send(order()));
            line.until(place, &format!("{strategy}: {place} are in line")).await;
        }
        for hangs_up in waiting.split_off(2) {
            hangs_up.abort();
        }
        line.until(3, &format!("{strategy}: two have left")).await;
        assert!(shop.let_go(&admin, 0, &id.to_string()).await, "{strategy}: nobody had a turn");
        body(answer(first).await, StatusCode::CREATED).await;
        for stays in waiting {
            body(answer(stays).await, StatusCode::CREATED).await;
        }
        let audit = shop.item_audit(&sku).await;
        assert_eq!((&audit["ok"], &audit["sold"]), (&json!(true), &json!(3)), "{strategy}");
        line.until(0, &format!("{strategy}: no token is left")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_of_disconnected_client_is_queued_for_expiry() {
    for strategy in ["batched", "fenced"] {
        let shop = Shop::start_with(1, &[JOBS, ("HOLDFAST_LOCK", strategy)]).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(10).await;
        let (id, order) = held(keyed(&shop, &alice, 0, &fresh_key(), &sku, 1), "commit");
        let buyer = send(order);
        shop.until_held(&admin, 0, id, "commit").await;
        buyer.abort();
        assert!(buyer.await.is_err_and(|ended| ended.is_cancelled()));
        shop.let_go(&admin, 0, &id.to_string()).await;
        let redis = Redis::open(&services().running.redis_url).unwrap();
        let queue = queue_of(redis, &shop.prefix);
        // It is due in a quarter of an hour, so no look back and no sweep has found it.
        until(&format!("{strategy}: the queue knows of it"), async || {
            queue.lengths().await.unwrap().0 == 1
        })
        .await;
        let pending = "select count(*) from orders where status = 'pending'";
        assert_eq!(shop.number(pending).await, 1, "{strategy}");
    }
}
