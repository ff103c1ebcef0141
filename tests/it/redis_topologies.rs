//! The shop on a Redis Cluster, and on Sentinel with a primary that dies during a sale.

use crate::common::{Shop, until};
use crate::topology::{self, Running, Topology, certificates};

/// Two replicas under the lock of this project, on that Redis.
async fn shop_on(topology: Topology) -> (Shop, Running) {
    let redis = tokio::task::spawn_blocking(move || topology::start(topology)).await.unwrap();
    let redis = redis.expect("redis-server is there");
    let mut env = vec![("REDIS_URL", redis.url.as_str()), ("HOLDFAST_LOCK", "fenced")];
    let folder = tempfile::tempdir().unwrap();
    certificates().write(folder.path());
    let files = ["authority", "client", "client-key"]
        .map(|name| format!("{}/{name}.pem", folder.path().display()));
    if redis.url.starts_with("rediss") {
        let names = ["HOLDFAST_REDIS_CA", "HOLDFAST_REDIS_CERT", "HOLDFAST_REDIS_KEY"];
        env.extend(names.into_iter().zip(files.iter().map(String::as_str)));
    }
    (Shop::start_with(2, &env).await, redis)
}

/// Sends concurrent orders. Returns the responses: sold, sold out, unavailable.
async fn order_concurrently(shop: &Shop, sku: &str, orders: usize) -> [usize; 3] {
    let alice = shop.sign_in("alice").await;
    let asked = (0..orders).map(|number| shop.order(&alice, number % 2, sku, 1).send());
    let mut counts = [0; 3];
    for answer in futures_util::future::join_all(asked).await {
        let kind = match answer.unwrap().status().as_u16() {
            201 => 0,
            409 => 1,
            503 => 2,
            other => panic!("{other}"),
        };
        counts[kind] += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cluster_sells_exact_stock() {
    let (shop, _redis) = shop_on(Topology::Cluster).await;
    for _ in 0..3 {
        let sku = shop.lab_item(10).await;
        assert_eq!(order_concurrently(&shop, &sku, 24).await, [10, 14, 0]);
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_failover_loses_no_unit() {
    failover_loses_no_unit(Topology::Sentinel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_failover_with_tls_loses_no_unit() {
    failover_loses_no_unit(Topology::TlsSentinel).await;
}

async fn failover_loses_no_unit(topology: Topology) {
    let (shop, mut redis) = shop_on(topology).await;
    let sku = shop.lab_item(40).await;
    assert_eq!(order_concurrently(&shop, &sku, 10).await, [10, 0, 0]);
    redis.data[0].0.kill();
    let mut sold = 10;
    let mut refused = 0;
    until("it sells again", async || {
        let [now, _, unavailable] = order_concurrently(&shop, &sku, 4).await;
        (sold, refused) = (sold + now, refused + unavailable);
        now == 4
    })
    .await;
    assert!(refused > 0, "no order was rejected");
    let [now, _, unavailable] = order_concurrently(&shop, &sku, 50).await;
    assert_eq!((sold + now, unavailable), (40, 0));
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["stock"], &audit["sold"]), (&0.into(), &40.into()), "{audit}");
    shop.assert_sound().await;
}
