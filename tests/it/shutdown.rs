//! Shutdown of a replica: it leaves the balancers before it closes, and finishes requests in
//! flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::topology::query;
use holdfast_testkit::{TestShop, fresh_key, id_of, until};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::interval;

/// Interval at which the balancer of a test checks readiness.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
const CLIENTS: usize = 8;
/// More than the test sells.
const LARGE_STOCK: i64 = 1_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn draining_replica_serves_and_is_not_ready() {
    let mut shop = TestShop::start_with(1, &[("HOLDFAST_DRAIN_S", "300")]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    let ready = async || shop.anonymous().get("/readyz").await;
    let before = ready().await;
    assert_eq!(before.headers.get("connection"), None, "the connection is kept");
    assert_eq!(before.succeeds(200)["ok"], true);

    shop.replicas[0].terminate();
    until("it is not ready", async || ready().await.status == 503).await;
    let response = ready().await;
    assert_eq!(response.header("connection"), "close");
    assert_eq!(response.header("retry-after"), "1");
    response.fails(503, "shutting-down");
    for (path, status) in [("/healthz", 200), ("/shop", 200), ("/api/orders", 401)] {
        let response = shop.anonymous().get(path).await;
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.header("connection"), "close", "{path}");
    }
    alice.orders(&sku, 1).ok().await;

    // The second signal does not wait for the end of the drain.
    shop.replicas[0].terminate();
    assert!(!shop.replicas[0].wait_for_exit().await, "its exit code reports the interruption");
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_slow_requests_in_flight() {
    let mut shop = TestShop::start(2).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    let sku = shop.shop_item(100, 100).await;
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let id = fresh_key();
    let first = alice.orders(&sku, 1).header("X-Request-Id", &id).pause("held:5000");
    let mut sent = vec![first.send()];
    sent.extend((1..10).map(|_| alice.orders(&sku, 1).send()));
    barrier.until_queued(10).await;
    barrier.open().await;
    shop.until_paused(&admin, 0, &id, "held").await;
    shop.replicas[0].terminate();
    for sent in sent {
        sent.succeeds(201).await;
    }
    assert!(shop.replicas[0].wait_for_exit().await, "it did not exit cleanly");
    assert_eq!(shop.number("select count(*) from orders").await, 10);
    shop.until_no_locks_are_held(1).await;
    shop.assert_sound().await;
}

/// A request that was dropped releases its lock in the background: here, with a Redis that takes
/// its time.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_lock_is_released_before_the_exit() {
    let (mut shop, redis) = TestShop::with_own_redis_and(&[("HOLDFAST_LOCK", "owner")]).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(10).await;
    let paused = shop.pause(&admin, alice.orders(&sku, 1), "held").await;

    // Less than a release waits. Redis forgets what it has not executed when a client ends.
    let _: String = query(&redis.url, "CLIENT PAUSE 600 ALL").unwrap();
    paused.sent.abort();
    shop.replicas[0].terminate();
    assert!(shop.replicas[0].wait_for_exit().await, "it did not exit cleanly");

    // At once, and not when its lease of ten seconds has ended.
    let locks = admin.at(1).reads("/api/locks").await;
    let of_item = |lock: &&Value| lock["key"].as_str().unwrap().contains(&sku);
    assert_eq!(locks.as_array().unwrap().iter().find(of_item), None);
}

/// A closed terminal sends the signal twice: from its shell, and from the kernel.
#[tokio::test(flavor = "multi_thread")]
async fn hung_up_replica_drains_before_it_exits() {
    // So long that the drain is seen also by a test that gets little of the processor.
    let mut shop = TestShop::start_with(1, &[("HOLDFAST_DRAIN_S", "6")]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    shop.replicas[0].hang_up();
    let ready = async || shop.anonymous().get("/readyz").await;
    until("it is not ready", async || ready().await.status == 503).await;
    shop.replicas[0].hang_up();
    alice.orders(&sku, 1).ok().await;
    assert!(shop.replicas[0].wait_for_exit().await, "it did not exit cleanly");
    shop.assert_sound().await;
}

/// A load balancer in this process: the replicas, and which of them are ready.
#[derive(Default)]
struct TestBalancer {
    replicas: Mutex<Vec<String>>,
    ready: Mutex<Vec<String>>,
    requests: AtomicUsize,
}

impl TestBalancer {
    async fn follow_readiness(&self, http: &reqwest::Client) {
        // A balancer has no other way to learn it. No order of events depends on the interval.
        let mut ticks = interval(PROBE_INTERVAL);
        loop {
            ticks.tick().await;
            let replicas = self.replicas.lock().clone();
            let probes = replicas.into_iter().map(async |base| {
                let response = http.get(format!("{base}/readyz")).send().await;
                response.is_ok_and(|response| response.status() == 200).then_some(base)
            });
            *self.ready.lock() = join_all(probes).await.into_iter().flatten().collect();
        }
    }

    fn is_ready(&self, base: &str) -> bool {
        self.ready.lock().iter().any(|ready| ready == base)
    }

    fn next(&self) -> String {
        let ready = self.ready.lock();
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        ready[n % ready.len()].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_fails_no_request() {
    let env = [("HOLDFAST_DRAIN_S", "2")];
    let mut shop = TestShop::start_with(3, &env).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(LARGE_STOCK, 100).await;
    let before = shop.number("select count(*) from orders").await;
    let balancer = Arc::new(TestBalancer::default());
    *balancer.replicas.lock() = shop.replicas.iter().map(|it| it.base_url.clone()).collect();
    let probes = tokio::spawn({
        let (balancer, http) = (balancer.clone(), reqwest::Client::new());
        async move { balancer.follow_readiness(&http).await }
    });
    until("all are ready", async || balancer.ready.lock().len() == 3).await;
    let over = Arc::new(AtomicBool::new(false));
    let clients = (0..CLIENTS).map(|_| {
        let (over, balancer) = (over.clone(), balancer.clone());
        let (alice, sku) = (alice.clone(), sku.clone());
        tokio::spawn(async move {
            let mut orders = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let order = alice.of(&balancer.next()).orders(&sku, 1).ok().await;
                orders.push(id_of(&order));
            }
            orders
        })
    });
    let clients: Vec<_> = clients.collect();

    for _ in 0..3 {
        let mut old = shop.replicas.remove(0);
        old.terminate();
        assert!(old.wait_for_exit().await, "it did not exit cleanly");
        assert!(!balancer.is_ready(&old.base_url), "it was out of the balancer in time");
        balancer.replicas.lock().retain(|base| *base != old.base_url);
        shop.add_replica(&env);
        let new = shop.replicas[2].base_url.clone();
        balancer.replicas.lock().push(new.clone());
        until("the new replica is ready", async || balancer.is_ready(&new)).await;
    }
    over.store(true, Ordering::Relaxed);
    let acknowledged: Vec<Vec<String>> =
        join_all(clients).await.into_iter().map(Result::unwrap).collect();
    probes.abort();
    let mut acknowledged = acknowledged.concat();
    acknowledged.sort();
    acknowledged.dedup();
    assert!(acknowledged.len() > 100, "only {} orders were placed", acknowledged.len());
    let orders = shop.number("select count(*) from orders").await - before;
    assert_eq!(orders, acknowledged.len() as i64, "each order was placed once");
    shop.assert_sound().await;
}
