//! A rejected request names the holder of the lock, as the list of locks does.

use holdfast_testkit::{Call, TestShop, User, assert_has, until};
use serde_json::{Value, json};

/// Holds the lock of `sku` at the first replica, for some seconds.
async fn hold_lock(shop: &TestShop, who: &User, sku: &str, strategy: &str) {
    let admin = shop.sign_in("admin").await;
    who.orders(sku, 1).lock(strategy).pause("read:4000").send();
    shop.until_one_is_paused(&admin, "read").await;
}

async fn rejected(order: Call, strategy: &str, status: u16) -> Value {
    order.lock(strategy).succeeds(status).await
}

#[tokio::test]
async fn lock_timeout_names_the_holder() {
    for strategy in ["owner", "watchdog", "redlock", "fenced", "batched"] {
        let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK_TIMEOUT_MS", "300")]).await;
        let alice = shop.sign_in("alice").await;
        let admin = shop.sign_in("admin").await;
        let sku = shop.lab_item(10).await;
        hold_lock(&shop, &alice, &sku, strategy).await;
        // Traced, it is not forwarded to the holder: what that does with it would be unknown.
        let order = alice.at(1).orders(&sku, 1).traced();
        let timeout = rejected(order, strategy, 503).await;
        assert_eq!(timeout["type"], "/problems/lock-timeout");
        assert_eq!(timeout["holder_process"], shop.replicas[0].name(), "{strategy}: {timeout}");
        assert!(timeout["holder_since"].as_str().unwrap().starts_with("20"), "{timeout}");
        assert_eq!(
            timeout["holder_fence"].is_i64(),
            strategy == "fenced" || strategy == "batched",
            "{timeout}"
        );
        let order = alice.at(1).orders(&sku, 1).tries();
        let busy = rejected(order, strategy, 423).await;
        assert_eq!(busy["type"], "/problems/lock-busy");
        assert!(busy["retry_after_ms"].as_u64().unwrap() > 0, "{busy}");
        assert_eq!(busy["holder_process"], timeout["holder_process"]);
        assert_eq!(busy["holder_fence"], timeout["holder_fence"]);
        // The list covers only the shop's own Redis, not the nodes of a quorum.
        if strategy != "redlock" {
            let locks = admin.reads("/api/locks").await;
            let key = format!("{}lock:{{sku:{sku}}}", shop.prefix);
            let lock = locks.as_array().unwrap().iter().find(|lock| lock["key"] == key).unwrap();
            assert_eq!(lock["process"], timeout["holder_process"]);
            assert_eq!(lock["fence"], timeout["holder_fence"]);
            for lock in locks.as_array().unwrap() {
                let key = lock["key"].as_str().unwrap();
                let is_beside =
                    [":queue", ":seen", ":fence"].into_iter().any(|end| key.ends_with(end));
                assert!(!is_beside, "{strategy}: {key} is no lock");
            }

            let token = |lock: &Value| lock["key"].as_str().unwrap().contains("token:");
            let token = locks.as_array().unwrap().iter().find(|lock| token(lock)).unwrap();
            assert_eq!(token["process"], timeout["holder_process"], "a token's holder too");
        }
    }
}

#[tokio::test]
async fn local_lock_names_its_process() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK_TIMEOUT_MS", "300")]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(10).await;
    hold_lock(&shop, &alice, &sku, "local").await;
    let order = alice.orders(&sku, 1);
    let timeout = rejected(order, "local", 503).await;
    assert_eq!(timeout["holder_process"], shop.replicas[0].name());
    assert_has(&timeout, json!({ "holder_since": null, "holder_fence": null }));
}

#[tokio::test]
async fn locks_list_shows_configured_replica_name() {
    let shop =
        TestShop::start_with(1, &[("HOLDFAST_REPLICA", "till-7"), ("HOLDFAST_LOCK", "fenced")])
            .await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(10).await;
    hold_lock(&shop, &alice, &sku, "fenced").await;
    until("the lock's holder is shown", async || {
        let locks = admin.reads("/api/locks").await;
        locks.as_array().unwrap().iter().any(|lock| lock["process"] == "till-7")
    })
    .await;
}
