//! The shop on a Redis Cluster, and on Sentinel with a primary that dies during a sale.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_testkit::topology::{self, RunningServers, Topology, certificates};
use holdfast_testkit::{CONDITION_TIMEOUT, TestShop, User, until};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Concurrent clients of [`sell`].
const CLIENTS: usize = 24;
const SECOND: Duration = Duration::from_secs(1);

/// Two replicas under the lock of this project, on that Redis.
async fn shop_on(topology: Topology) -> (TestShop, RunningServers) {
    shop_with(topology, "fenced").await
}

async fn shop_with(topology: Topology, strategy: &str) -> (TestShop, RunningServers) {
    let redis = tokio::task::spawn_blocking(move || topology::start(topology)).await.unwrap();
    let redis = redis.expect("redis-server is installed");
    let mut env = vec![("REDIS_URL", redis.url.as_str()), ("HOLDFAST_LOCK", strategy)];
    let folder = tempfile::tempdir().unwrap();
    certificates().write(folder.path());
    let files = ["authority", "client", "client-key"]
        .map(|name| format!("{}/{name}.pem", folder.path().display()));
    if redis.url.starts_with("rediss") {
        let names = ["HOLDFAST_REDIS_CA", "HOLDFAST_REDIS_CERT", "HOLDFAST_REDIS_KEY"];
        env.extend(names.into_iter().zip(files.iter().map(String::as_str)));
    }
    (TestShop::start_with(2, &env).await, redis)
}

/// Sends concurrent orders. Returns the responses: sold, sold out, unavailable.
async fn order_concurrently(shop: &TestShop, sku: &str, orders: usize) -> [usize; 3] {
    let alice = shop.sign_in("alice").await;
    let requests = (0..orders).map(|number| alice.at(number % 2).orders(sku, 1).send());
    let mut counts = [0; 3];
    for response in futures_util::future::join_all(requests).await {
        let kind = match response.status {
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
async fn redis_failover_with_tls_loses_no_unit() {
    let (shop, mut redis) = shop_on(Topology::TlsSentinel).await;
    let sku = shop.lab_item(40).await;
    assert_eq!(order_concurrently(&shop, &sku, 10).await, [10, 0, 0]);
    redis.data[0].0.kill();
    let mut sold = 10;
    let mut rejected = 0;
    until("it sells again", async || {
        let [now, _, unavailable] = order_concurrently(&shop, &sku, 4).await;
        (sold, rejected) = (sold + now, rejected + unavailable);
        now == 4
    })
    .await;
    assert!(rejected > 0, "no order was rejected");
    let [now, _, unavailable] = order_concurrently(&shop, &sku, 50).await;
    assert_eq!((sold + now, unavailable), (40, 0));
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["stock"], &audit["sold"]), (&0.into(), &40.into()), "{audit}");
    shop.assert_sound().await;
}

/// The keys of an item's lock lie on the node at this index of [`RunningServers::data`].
fn node_of(redis: &RunningServers, sku: &str) -> usize {
    let slot: usize =
        topology::query(&redis.data[0].1, &format!("CLUSTER KEYSLOT sku:{sku}")).unwrap();
    slot * redis.data.len() / 16_384
}

/// Orders of clients that each wait for a response before they send the next.
#[derive(Debug, Default, Clone, Copy)]
struct Sales {
    sold: usize,
    failed: usize,
    slowest: Duration,
}

/// Sells these items for `time` to concurrent clients.
async fn sell(who: &User, items: &[String], time: Duration) -> Sales {
    let end = Instant::now() + time;
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (who, items) = (who.clone(), items.to_vec());
        clients.spawn(async move {
            let mut sales = Sales::default();
            let mut number = client;
            while Instant::now() < end {
                number += 1;
                let sent = Instant::now();
                let response = who.at(client % 2).orders(&items[number % items.len()], 1).await;
                sales.slowest = sales.slowest.max(sent.elapsed());
                match response.status {
                    201 => sales.sold += 1,
                    _ => sales.failed += 1,
                }
            }
            sales
        });
    }
    let add = |all: Sales, one: Sales| Sales {
        sold: all.sold + one.sold,
        failed: all.failed + one.failed,
        slowest: all.slowest.max(one.slowest),
    };
    clients.join_all().await.into_iter().fold(Sales::default(), add)
}

/// One master of three is silent; the items whose locks are on the others sell as before.
async fn healthy_items_sell(signal: Signal) {
    let (shop, redis) = shop_with(Topology::Cluster, "batched").await;
    let alice = shop.sign_in("alice").await;
    let mut items: [Vec<String>; 3] = Default::default();
    while items.iter().any(|items| items.len() < 3) {
        let sku = shop.lab_item(1_000_000).await;
        items[node_of(&redis, &sku)].push(sku);
    }
    let silent = items[2].clone();
    let healthy = [items[0].clone(), items[1].clone()].concat();

    sell(&alice, &healthy, SECOND).await;
    let before = sell(&alice, &healthy, 3 * SECOND).await;
    redis.data[2].0.signal(signal);
    // Orders of its own items continue, too.
    let failed = Arc::new(AtomicUsize::new(0));
    let others = keep_ordering(&alice, silent, &failed);
    let during = sell(&alice, &healthy, 6 * SECOND).await;
    println!("{signal:?}: before {before:?}, during {during:?}");
    if signal == Signal::STOP {
        redis.data[2].0.signal(Signal::CONT);
        failed.store(0, Ordering::SeqCst);
        timeout(CONDITION_TIMEOUT, others.join_all()).await.expect("its items sell again");
        // A few per item, until the client notices the recovery. If it considered the node down for
        // longer, orders would fail at once, 20 a second.
        let failed = failed.load(Ordering::SeqCst);
        assert!(failed <= 10 * items[2].len(), "{failed} orders failed after the recovery");
    }
    shop.assert_sound().await;
    // Generous bounds for a busy machine: even without the fault an order may fail there, and half
    // as many may be sold.
    assert!(during.failed * 50 <= during.sold, "{during:?}");
    assert!(during.sold > before.sold / 2, "{before:?}, {during:?}");
}

/// Retries an order of each item until it succeeds, after a pause as clients do, and counts the
/// failures: their number says for how long it failed.
fn keep_ordering(who: &User, items: Vec<String>, failed: &Arc<AtomicUsize>) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for sku in items {
        let (who, failed) = (who.clone(), failed.clone());
        clients.spawn(async move {
            while who.orders(&sku, 1).await.status != 201 {
                failed.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_items_sell_beside_a_lost_master() {
    healthy_items_sell(Signal::STOP).await;
    healthy_items_sell(Signal::KILL).await;
}
