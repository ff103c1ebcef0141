//! The strategy `queue`: a bounded house, four ways to offer to it when it is full, who goes first,
//! and the rendezvous.
//!
//! Requests are held at the lab's points until they are let go, and a test goes on when the replica
//! says who stands in line.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::{Shop, User, body, problem, until};
use crate::holds::held;
use crate::queue::{Sent, answer, send, told};

/// One replica and one item.
struct House {
    shop: Shop,
    alice: User,
    admin: User,
    sku: String,
}

/// Whoever has their turn, and is held in it.
struct Served {
    id: Uuid,
    sent: Sent,
}

impl House {
    async fn with(stock: i64, env: &[(&str, &str)]) -> Self {
        let shop = Shop::start_with(1, env).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(stock).await;
        Self { shop, alice, admin, sku }
    }

    fn order(&self) -> RequestBuilder {
        self.shop.order(&self.alice, 0, &self.sku, 1).header("Holdfast-Lock", "queue")
    }

    fn guest(&self) -> RequestBuilder {
        self.order().header("Holdfast-Places", "2")
    }

    fn offer(&self, offer: &str) -> RequestBuilder {
        self.guest().header("Holdfast-Offer", offer)
    }

    fn restock(&self, delta: i64) -> RequestBuilder {
        let path = format!("/api/items/{}/stock", self.sku);
        let more = json!({ "delta": delta, "reason": "restock" });
        self.shop.request(&self.admin, Method::POST, 0, &path).json(&more)
    }

    /// Sends it, and waits until it is held in its turn.
    async fn served(&self, request: RequestBuilder) -> Served {
        let (id, request) = held(request, "held");
        let sent = send(request);
        self.shop.until_held(&self.admin, 0, id, "held").await;
        Served { id, sent }
    }

    async fn look(&self, path: &str) -> Value {
        let look = self.shop.request(&self.admin, Method::GET, 0, path);
        body(look.send().await.unwrap(), StatusCode::OK).await
    }

    /// How many stand inside and outside.
    async fn line(&self) -> (u64, u64) {
        let key = format!("{{sku:{}}}", self.sku);
        let queues = self.look("/api/lab/queues").await;
        let here = queues.as_array().unwrap().iter().find(|queue| queue["key"] == key);
        here.map_or((0, 0), |queue| {
            (queue["inside"].as_u64().unwrap(), queue["outside"].as_u64().unwrap())
        })
    }

    async fn until_line(&self, inside: u64, outside: u64) {
        let what = format!("{inside} stand inside and {outside} outside");
        until(&what, async || self.line().await == (inside, outside)).await;
    }

    /// Sends so many, one behind the other.
    async fn line_of(&self, many: u64, request: impl Fn() -> RequestBuilder) -> Vec<Sent> {
        let mut line = Vec::new();
        for place in 1..=many {
            line.push(send(request()));
            self.until_line(place, 0).await;
        }
        line
    }

    async fn goes_on(&self, served: Served) -> reqwest::Response {
        assert!(self.shop.let_go(&self.admin, 0, &served.id.to_string()).await);
        answer(served.sent).await
    }
}

async fn placed(sent: Sent) -> Value {
    body(answer(sent).await, StatusCode::CREATED).await
}

#[tokio::test]
async fn full_queue_follows_the_offer_mode() {
    let house = House::with(10, &[("HOLDFAST_LOCK_TIMEOUT_MS", "700")]).await;
    let served = house.served(house.guest()).await;
    // As long as the test likes: `put` does not care how long anybody waits for a lock.
    let line = house.line_of(2, || house.offer("put")).await;

    for fails in [house.guest(), house.offer("add")] {
        assert_eq!(problem(fails.send().await.unwrap(), 503).await, "overloaded");
    }
    let (status, kind, refused) = told(house.offer("offer").send().await.unwrap()).await;
    assert_eq!((status, kind.as_str()), (423, "lock-busy"));
    assert_eq!(refused["holder_process"], house.shop.replicas[0].name());
    assert!(refused["holder_since"].is_string(), "{refused}");
    for (offer, ms) in [("offer-for:300", 300), ("offer-for", 700)] {
        let (began, least) = (Instant::now(), Duration::from_millis(ms));
        assert_eq!(
            problem(house.offer(offer).send().await.unwrap(), 503).await,
            "lock-timeout",
            "{offer}"
        );
        assert!(began.elapsed() >= least, "{offer}: {:?}", began.elapsed());
    }
    let put = send(house.offer("put"));
    house.until_line(2, 1).await;

    body(house.goes_on(served).await, StatusCode::CREATED).await;
    for waits in line.into_iter().chain([put]) {
        placed(waits).await;
    }
    let audit = house.shop.item_audit_at(0, &house.sku).await;
    assert_eq!((&audit["ok"], &audit["sold"]), (&json!(true), &json!(4)), "{audit:#}");
    until("the house is gone", async || house.look("/api/lab/queues").await == json!([])).await;
}

#[tokio::test]
async fn restock_overtakes_waiting_orders() {
    let house = House::with(1, &[]).await;
    let served = house.served(house.order()).await;
    let line = house.line_of(3, || house.order()).await;
    let restock = send(house.restock(3).header("Holdfast-Lock", "queue"));
    house.until_line(4, 0).await;
    body(house.goes_on(served).await, StatusCode::CREATED).await;
    let entry = body(answer(restock).await, StatusCode::OK).await;
    assert_eq!((&entry["before"], &entry["after"]), (&json!(0), &json!(3)));
    for (waits, left) in line.into_iter().zip([3, 2, 1]) {
        assert_eq!(
            placed(waits).await["lines"][0]["stock"]["before"],
            left,
            "in the order they came"
        );
    }
}

#[tokio::test]
async fn restock_without_priority_waits_its_turn() {
    let house = House::with(1, &[]).await;
    let served = house.served(house.order()).await;
    let line = house.line_of(2, || house.order()).await;
    let restock = house.restock(2).header("Holdfast-Lock", "queue");
    let restock = send(restock.header("Holdfast-Priority", "normal"));
    house.until_line(3, 0).await;
    body(house.goes_on(served).await, StatusCode::CREATED).await;
    for waits in line {
        assert_eq!(problem(answer(waits).await, 409).await, "sold-out");
    }
    let entry = body(answer(restock).await, StatusCode::OK).await;
    assert_eq!((&entry["before"], &entry["after"]), (&json!(0), &json!(2)));
}

#[tokio::test]
async fn cancelled_unit_goes_to_next_waiter() {
    let mut house = House::with(0, &[("HOLDFAST_LOCK", "queue")]).await;
    house.sku = house.shop.shop_item(1, 100).await;
    let order = house.shop.order(&house.alice, 0, &house.sku, 1);
    let order = body(order.send().await.unwrap(), StatusCode::CREATED).await;
    let served = house.served(house.order()).await;
    let line = house.line_of(1, || house.order()).await;
    let path = format!("/api/orders/{}/cancel", order["id"].as_str().unwrap());
    let cancel = send(house.shop.request(&house.alice, Method::POST, 0, &path));
    house.until_line(2, 0).await;
    assert_eq!(problem(house.goes_on(served).await, 409).await, "sold-out");
    body(answer(cancel).await, StatusCode::OK).await;
    for next in line {
        placed(next).await;
    }
}

#[tokio::test]
async fn timed_out_waiter_frees_its_place() {
    let house = House::with(10, &[("HOLDFAST_LOCK_TIMEOUT_MS", "2000")]).await;
    let served = house.served(house.guest()).await;
    let mut line = house.line_of(1, || house.offer("put")).await;
    let in_vain = send(house.offer("offer"));
    house.until_line(2, 0).await;
    assert_eq!(problem(house.offer("offer").send().await.unwrap(), 423).await, "lock-busy");
    assert_eq!(problem(answer(in_vain).await, 503).await, "lock-timeout");
    assert_eq!(house.line().await, (1, 0));
    line.push(send(house.offer("put")));
    house.until_line(2, 0).await;
    body(house.goes_on(served).await, StatusCode::CREATED).await;
    for waits in line {
        placed(waits).await;
    }
    let audit = house.shop.item_audit_at(0, &house.sku).await;
    assert_eq!((&audit["ok"], &audit["sold"]), (&json!(true), &json!(3)), "{audit:#}");
}

#[tokio::test]
async fn disconnected_client_frees_its_place() {
    let house = House::with(10, &[]).await;
    let served = house.served(house.guest()).await;
    let mut line = house.line_of(2, || house.offer("put")).await;
    let outside = send(house.offer("put"));
    house.until_line(2, 1).await;
    // The one in the middle goes, and whoever stood outside has the place.
    line.remove(1).abort();
    house.until_line(2, 0).await;
    outside.abort();
    house.until_line(1, 0).await;
    line.push(send(house.offer("put")));
    house.until_line(2, 0).await;
    body(house.goes_on(served).await, StatusCode::CREATED).await;
    for waits in line {
        placed(waits).await;
    }
    let audit = house.shop.item_audit_at(0, &house.sku).await;
    assert_eq!((&audit["ok"], &audit["sold"]), (&json!(true), &json!(3)), "{audit:#}");
}

#[tokio::test]
async fn try_never_joins_the_queue() {
    let house = House::with(10, &[]).await;
    let trying = || house.order().header("Holdfast-Wait", "try");
    let served = house.served(trying()).await;
    assert_eq!(problem(trying().send().await.unwrap(), 423).await, "lock-busy");
    let line = house.line_of(1, || house.order()).await;
    assert_eq!(problem(trying().send().await.unwrap(), 423).await, "lock-busy");
    let both = trying().header("Holdfast-Offer", "put");
    assert_eq!(problem(both.send().await.unwrap(), 422).await, "invalid-request");
    body(house.goes_on(served).await, StatusCode::CREATED).await;
    for waits in line {
        placed(waits).await;
    }
    body(trying().send().await.unwrap(), StatusCode::CREATED).await;
}

#[tokio::test]
async fn restock_obeys_lab_restrictions() {
    let house = House::with(10, &[]).await;
    let of_the_shop = |lock: &str| {
        let more = json!({ "delta": 1, "reason": "restock" });
        let path = "/api/items/deadbolt/stock";
        let request = house.shop.request(&house.admin, Method::POST, 0, path).json(&more);
        request.header("Holdfast-Lock", lock)
    };
    assert_eq!(problem(of_the_shop("queue").send().await.unwrap(), 403).await, "forbidden");
    assert_eq!(problem(of_the_shop("hope").send().await.unwrap(), 422).await, "invalid-request");
    body(of_the_shop("row-lock").send().await.unwrap(), StatusCode::OK).await;
    let traced = house.restock(1).header("Holdfast-Trace", "on").header("Holdfast-Lock", "queue");
    let entry = body(traced.send().await.unwrap(), StatusCode::OK).await;
    let events: Vec<&str> =
        entry["trace"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["wait", "held", "read", "write", "commit", "committed", "release"]);
}
