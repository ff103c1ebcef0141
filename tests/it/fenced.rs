//! The shop under `fenced`: a stale holder, a flushed Redis, and two separate Redis servers.

use std::time::Instant;

use holdfast_testkit::{BUSY_MACHINE, LEASE, Reply, TestShop, assert_has, services};
use serde_json::json;

async fn fenced(replicas: usize) -> TestShop {
    TestShop::start_with(replicas, &[("HOLDFAST_LOCK", "fenced")]).await
}

async fn flush(shop: &TestShop) {
    let client = redis::Client::open(services().running.redis_url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg(format!("{}*", shop.prefix))
        .query_async(&mut connection)
        .await
        .unwrap();
    if !keys.is_empty() {
        let _: () = redis::cmd("DEL").arg(keys).query_async(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn paused_holder_cannot_write() {
    let shop = fenced(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(10).await;
    // It reads 10, then its process is stopped.
    let late = alice.orders(&sku, 1).pause("read:3000").send();
    shop.until_one_is_paused(&admin, "read").await;
    shop.replicas[0].pause();
    let paused = Instant::now();
    let next = alice.at(1).orders(&sku, 1).ok().await;
    assert!(paused.elapsed() < LEASE + BUSY_MACHINE, "{:?}", paused.elapsed());
    assert_eq!(next["lines"][0]["stock"], json!({ "before": 10, "delta": -1, "after": 9 }));
    shop.replicas[0].resume();
    late.fails(503, "lock-lost").await;
    let audit = shop.item_audit(&sku).await;
    assert_has(&audit, json!({ "sold": 1, "ok": true }));
    assert_eq!(audit["forks"], json!([]));
}

#[tokio::test]
async fn fences_are_raised_after_redis_flush() {
    let shop = fenced(2).await;
    let alice = shop.sign_in("alice").await;
    let buy = async |replica: usize| {
        let order = alice.at(replica).orders("deadbolt", 1).ok().await;
        alice.at(replica).pays(&order).ok().await;
    };
    for n in 0..4 {
        buy(n % 2).await;
    }
    flush(&shop).await;
    for n in 0..4 {
        buy(n % 2).await;
    }
    let ledger = alice.reads("/api/items/deadbolt/ledger").await;
    let fences: Vec<i64> = ledger["items"].as_array().unwrap()[1..]
        .iter()
        .map(|e| e["fence"].as_i64().unwrap())
        .collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    shop.assert_sound().await;
}

/// Counts the accepted orders; all others must be sold out, or rejected by the lock.
async fn accepted(responses: Vec<Reply>) -> usize {
    let mut accepted = 0;
    for response in responses {
        match response.status {
            201 => accepted += 1,
            409 => assert_eq!(response.problem(), "sold-out"),
            _ => {
                let problem = response.problem();
                assert_eq!(response.status, 503, "{response}");
                assert!(
                    ["lock-lost", "overloaded", "lock-timeout"].contains(&problem),
                    "{problem}"
                );
            }
        }
    }
    accepted
}

async fn assert_exact(shop: &TestShop, sku: &str, sold: usize) {
    let audit = shop.item_audit(sku).await;
    assert_eq!(audit["sold"], sold);
    assert_has(&audit, json!({ "ok": true, "forks": [], "oversold": 0 }));
}

#[tokio::test]
async fn version_guard_survives_two_separate_redis() {
    let mut shop = TestShop::without_replicas().await;
    let other = format!("{}other:", shop.prefix);
    shop.add_replica(&[("HOLDFAST_LOCK", "fenced")]);
    shop.add_replica(&[("HOLDFAST_LOCK", "fenced"), ("HOLDFAST_REDIS_PREFIX", &other)]);
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(15).await;
    let orders = (0..40).map(|n| alice.at(n % 2).orders(&sku, 1).send());
    let accepted = accepted(futures_util::future::join_all(orders).await).await;
    assert!(accepted > 0);
    assert_exact(&shop, &sku, accepted).await;
}
