//! The strategy `queue`: a bounded queue, four behaviours when it is full, priorities, and the
//! rendezvous.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::requests::{Answer as _, Sent, send};
use crate::common::{Shop, User, until};
use crate::pause_points::with_pause;

/// One replica and one item.
struct QueueTest {
    shop: Shop,
    alice: User,
    admin: User,
    sku: String,
}

/// An order that is paused while it holds the queue's lock.
struct RunningOrder {
    id: Uuid,
    sent: Sent,
}

impl QueueTest {
    async fn with(stock: i64, env: &[(&str, &str)]) -> Self {
        let shop = Shop::start_with(1, env).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(stock).await;
        Self { shop, alice, admin, sku }
    }

    fn order(&self) -> RequestBuilder {
        self.shop.order(&self.alice, 0, &self.sku, 1).header("Holdfast-Lock", "queue")
    }

    fn bounded_order(&self) -> RequestBuilder {
        self.order().header("Holdfast-Places", "2")
    }

    fn offer(&self, offer: &str) -> RequestBuilder {
        self.bounded_order().header("Holdfast-Offer", offer)
    }

    fn restock(&self, delta: i64) -> RequestBuilder {
        let path = format!("/api/items/{}/stock", self.sku);
        let more = json!({ "delta": delta, "reason": "restock" });
        self.shop.request(&self.admin, Method::POST, 0, &path).json(&more)
    }

    /// Sends it, and waits until it is paused while it holds the lock.
    async fn start(&self, request: RequestBuilder) -> RunningOrder {
        let (id, request) = with_pause(request, "held");
        let sent = send(request);
        self.shop.until_paused(&self.admin, 0, id, "held").await;
        RunningOrder { id, sent }
    }

    async fn get(&self, path: &str) -> Value {
        self.shop.get(&self.admin, 0, path).gives(200).await
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
    async fn enqueue(&self, many: u64, request: impl Fn() -> RequestBuilder) -> Vec<Sent> {
        let mut queued = Vec::new();
        for place in 1..=many {
            queued.push(send(request()));
            self.until_lengths(place, 0).await;
        }
        queued
    }

    async fn finish(&self, running: RunningOrder) -> reqwest::Response {
        assert!(self.shop.resume_request(&self.admin, 0, &running.id.to_string()).await);
        running.sent.response().await
    }

    /// Finishes the running order, then the queued ones. All succeed, and no others were sold.
    async fn finish_queued(&self, running: RunningOrder, queued: Vec<Sent>) {
        let sold = 1 + queued.len();
        self.finish(running).await.gives(201).await;
        for queued in queued {
            created(queued).await;
        }
        let audit = self.shop.item_audit_at(0, &self.sku).await;
        assert_eq!((&audit["ok"], &audit["sold"]), (&json!(true), &json!(sold)), "{audit:#}");
    }
}

async fn created(sent: Sent) -> Value {
    sent.gives(201).await
}

#[tokio::test]
async fn full_queue_follows_the_offer_mode() {
    let test = QueueTest::with(10, &[("HOLDFAST_LOCK_TIMEOUT_MS", "700")]).await;
    let running = test.start(test.bounded_order()).await;
    // Longer than the lock timeout: `put` ignores it.
    let mut queued = test.enqueue(2, || test.offer("put")).await;

    for fails in [test.bounded_order(), test.offer("add")] {
        fails.refuses(503, "overloaded").await;
    }
    let rejected = test.offer("offer").refuses(423, "lock-busy").await;
    assert_eq!(rejected["holder_process"], test.shop.replicas[0].name());
    assert!(rejected["holder_since"].is_string(), "{rejected}");
    for (offer, ms) in [("offer-for:300", 300), ("offer-for", 700)] {
        let (began, least) = (Instant::now(), Duration::from_millis(ms));
        assert_eq!(test.offer(offer).fails(503).await, "lock-timeout", "{offer}");
        assert!(began.elapsed() >= least, "{offer}: {:?}", began.elapsed());
    }
    queued.push(send(test.offer("put")));
    test.until_lengths(2, 1).await;

    test.finish_queued(running, queued).await;
    until("the queue is removed", async || test.get("/api/lab/queues").await == json!([])).await;
}

#[tokio::test]
async fn restock_overtakes_waiting_orders() {
    let test = QueueTest::with(1, &[]).await;
    let running = test.start(test.order()).await;
    let queued = test.enqueue(3, || test.order()).await;
    let restock = send(test.restock(3).header("Holdfast-Lock", "queue"));
    test.until_lengths(4, 0).await;
    test.finish(running).await.gives(201).await;
    let entry = restock.gives(200).await;
    assert_eq!((&entry["before"], &entry["after"]), (&json!(0), &json!(3)));
    for (queued, left) in queued.into_iter().zip([3, 2, 1]) {
        assert_eq!(
            created(queued).await["lines"][0]["stock"]["before"],
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
    let restock = test.restock(2).header("Holdfast-Lock", "queue");
    let restock = send(restock.header("Holdfast-Priority", "normal"));
    test.until_lengths(3, 0).await;
    test.finish(running).await.gives(201).await;
    for queued in queued {
        queued.refuses(409, "sold-out").await;
    }
    let entry = restock.gives(200).await;
    assert_eq!((&entry["before"], &entry["after"]), (&json!(0), &json!(2)));
}

#[tokio::test]
async fn cancelled_unit_goes_to_next_waiter() {
    let mut test = QueueTest::with(0, &[("HOLDFAST_LOCK", "queue")]).await;
    test.sku = test.shop.shop_item(1, 100).await;
    test.alice = test.shop.promoted("alice").await;
    let order = test.shop.order(&test.alice, 0, &test.sku, 1);
    let order = order.gives(201).await;
    let running = test.start(test.order()).await;
    let queued = test.enqueue(1, || test.order()).await;
    let path = format!("/api/orders/{}/cancel", order["id"].as_str().unwrap());
    let cancel = send(test.shop.request(&test.alice, Method::POST, 0, &path));
    test.until_lengths(2, 0).await;
    test.finish(running).await.refuses(409, "sold-out").await;
    cancel.gives(200).await;
    for next in queued {
        created(next).await;
    }
}

#[tokio::test]
async fn restock_obeys_lab_restrictions() {
    let test = QueueTest::with(10, &[]).await;
    let of_the_shop = |lock: &str| {
        let more = json!({ "delta": 1, "reason": "restock" });
        let path = "/api/items/deadbolt/stock";
        let request = test.shop.request(&test.admin, Method::POST, 0, path).json(&more);
        request.header("Holdfast-Lock", lock)
    };
    of_the_shop("queue").refuses(403, "forbidden").await;
    of_the_shop("hope").refuses(422, "invalid-request").await;
    of_the_shop("row-lock").gives(200).await;
    let entry = test
        .restock(1)
        .header("Holdfast-Trace", "on")
        .header("Holdfast-Lock", "queue")
        .gives(200)
        .await;
    let events: Vec<&str> =
        entry["trace"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["wait", "held", "read", "write", "commit", "committed", "release"]);
}
