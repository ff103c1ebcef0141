//! The strategy `queue`: a bounded queue, four behaviours when it is full, priorities, and the
//! rendezvous.

use std::time::{Duration, Instant};

use holdfast_testkit::pause_points::PausedCall;
use holdfast_testkit::{Call, Reply, Sent, TestShop, User, assert_has, until};
use serde_json::{Value, json};

/// One replica and one item.
struct QueueTest {
    shop: TestShop,
    alice: User,
    admin: User,
    sku: String,
}

impl QueueTest {
    async fn with(stock: i64, env: &[(&str, &str)]) -> Self {
        let shop = TestShop::start_with(1, env).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(stock).await;
        Self { shop, alice, admin, sku }
    }

    fn order(&self) -> Call {
        self.alice.orders(&self.sku, 1).lock("queue")
    }

    fn bounded_order(&self) -> Call {
        self.order().header("Holdfast-Places", "2")
    }

    fn offer(&self, offer: &str) -> Call {
        self.bounded_order().header("Holdfast-Offer", offer)
    }

    fn restock(&self, delta: i64) -> Call {
        self.admin.restocks(&self.sku, delta)
    }

    /// Sends it, and waits until it is paused while it holds the lock.
    async fn start(&self, call: Call) -> PausedCall {
        self.shop.pause(&self.admin, call, "held").await
    }

    async fn get(&self, path: &str) -> Value {
        self.admin.get(path).ok().await
    }

    /// The numbers of requests in the queue and of those that wait for a place.
    async fn lengths(&self) -> (u64, u64) {
        let key = format!("{{sku:{}}}", self.sku);
        let queues = self.get("/api/lab/queues").await;
        let here = queues.as_array().unwrap().iter().find(|queue| queue["key"] == key);
        here.map_or((0, 0), |queue| {
            (queue["inside"].as_u64().unwrap(), queue["outside"].as_u64().unwrap())
        })
    }

    async fn until_lengths(&self, inside: u64, outside: u64) {
        let what = format!("{inside} requests are queued and {outside} wait for a place");
        until(&what, async || self.lengths().await == (inside, outside)).await;
    }

    /// Enqueues `many` requests, one after the other.
    async fn enqueue(&self, many: u64, request: impl Fn() -> Call) -> Vec<Sent> {
        let mut queued = Vec::new();
        for place in 1..=many {
            queued.push(request().send());
            self.until_lengths(place, 0).await;
        }
        queued
    }

    async fn finish(&self, running: PausedCall) -> Reply {
        self.shop.resume(&self.admin, running).await
    }

    /// Finishes the running order, then the queued ones. All succeed, and no others were sold.
    async fn finish_queued(&self, running: PausedCall, queued: Vec<Sent>) {
        let sold = 1 + queued.len();
        self.finish(running).await.ok();
        for queued in queued {
            queued.ok().await;
        }
        let audit = self.shop.item_audit_at(0, &self.sku).await;
        assert_has(&audit, json!({ "ok": true, "sold": sold }));
    }
}

#[tokio::test]
async fn full_queue_follows_the_offer_mode() {
    let test = QueueTest::with(10, &[("HOLDFAST_LOCK_TIMEOUT_MS", "700")]).await;
    let running = test.start(test.bounded_order()).await;
    // Longer than the lock timeout: `put` ignores it.
    let mut queued = test.enqueue(2, || test.offer("put")).await;

    for fails in [test.bounded_order(), test.offer("add")] {
        fails.fails(503, "overloaded").await;
    }
    let rejected = test.offer("offer").fails(423, "lock-busy").await;
    assert_eq!(rejected["holder_process"], test.shop.replicas[0].name());
    assert!(rejected["holder_since"].is_string(), "{rejected}");
    for (offer, ms) in [("offer-for:300", 300), ("offer-for", 700)] {
        let (began, least) = (Instant::now(), Duration::from_millis(ms));
        test.offer(offer).fails(503, "lock-timeout").await;
        assert!(began.elapsed() >= least, "{offer}: {:?}", began.elapsed());
    }
    queued.push(test.offer("put").send());
    test.until_lengths(2, 1).await;

    test.finish_queued(running, queued).await;
    until("the queue is removed", async || test.get("/api/lab/queues").await == json!([])).await;
}

#[tokio::test]
async fn restock_overtakes_waiting_orders() {
    let test = QueueTest::with(1, &[]).await;
    let running = test.start(test.order()).await;
    let queued = test.enqueue(3, || test.order()).await;
    let restock = test.restock(3).lock("queue").send();
    test.until_lengths(4, 0).await;
    test.finish(running).await.ok();
    let entry = restock.succeeds(200).await;
    assert_has(&entry, json!({ "before": 0, "after": 3 }));
    for (queued, left) in queued.into_iter().zip([3, 2, 1]) {
        assert_eq!(
            queued.ok().await["lines"][0]["stock"]["before"],
            left,
            "in the order of arrival"
        );
    }
}

#[tokio::test]
async fn restock_without_priority_is_not_preferred() {
    let test = QueueTest::with(1, &[]).await;
    let running = test.start(test.order()).await;
    let queued = test.enqueue(2, || test.order()).await;
    let restock = test.restock(2).lock("queue").header("Holdfast-Priority", "normal").send();
    test.until_lengths(3, 0).await;
    test.finish(running).await.ok();
    for queued in queued {
        queued.fails(409, "sold-out").await;
    }
    let entry = restock.succeeds(200).await;
    assert_has(&entry, json!({ "before": 0, "after": 2 }));
}

#[tokio::test]
async fn cancelled_unit_goes_to_next_waiter() {
    let mut test = QueueTest::with(0, &[("HOLDFAST_LOCK", "queue")]).await;
    test.sku = test.shop.shop_item(1, 100).await;
    test.alice = test.shop.promoted("alice").await;
    let order = test.alice.orders(&test.sku, 1).succeeds(201).await;
    let running = test.start(test.order()).await;
    let queued = test.enqueue(1, || test.order()).await;
    let cancel = test.alice.cancels(&order).send();
    test.until_lengths(2, 0).await;
    test.finish(running).await.fails(409, "sold-out");
    cancel.succeeds(200).await;
    for next in queued {
        next.ok().await;
    }
}

#[tokio::test]
async fn restock_obeys_lab_restrictions() {
    let test = QueueTest::with(10, &[]).await;
    let of_the_shop = |lock: &str| test.admin.restocks("deadbolt", 1).lock(lock);

    of_the_shop("queue").fails(403, "forbidden").await;
    of_the_shop("hope").fails(422, "invalid-request").await;
    of_the_shop("row-lock").succeeds(200).await;
    let entry = test.restock(1).traced().lock("queue").succeeds(200).await;
    let events: Vec<&str> =
        entry["trace"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["wait", "held", "read", "write", "commit", "committed", "release"]);
}
