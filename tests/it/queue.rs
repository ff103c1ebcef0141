//! A lock that the test itself holds, so that requests queue up behind it until it lets them go:
//! what comes in one batch is the test's to say.

use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks, Redis, Settings, Wait,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::common::{PATIENCE, Shop, User, body, services, until};
use crate::topology::{self, Running, Topology};

/// An order under that key.
pub fn keyed(
    shop: &Shop,
    who: &User,
    at: usize,
    key: &str,
    sku: &str,
    many: i64,
) -> RequestBuilder {
    shop.request(who, Method::POST, at, "/api/orders")
        .header("Idempotency-Key", key)
        .json(&json!({ "lines": [{ "sku": sku, "quantity": many }] }))
}

pub fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

pub fn is_replayed(response: &Response) -> bool {
    response.headers().get("idempotent-replayed").is_some_and(|value| value == "true")
}

/// A request on its way.
pub type Sent = JoinHandle<reqwest::Result<Response>>;

/// Sends it off.
pub fn send(request: RequestBuilder) -> Sent {
    tokio::spawn(request.send())
}

pub async fn answer(sent: Sent) -> Response {
    sent.await.unwrap().unwrap()
}

/// The answer's status and the name of its problem, if it is one, with its body.
pub async fn told(response: Response) -> (u16, String, Value) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    let kind = body["type"].as_str().and_then(|kind| kind.strip_prefix("/problems/"));
    (status, kind.unwrap_or_default().to_owned(), body)
}

/// The requests of a shop that are being worked on or wait to be, by their tokens in Redis.
pub struct Line {
    redis: redis::aio::MultiplexedConnection,
    tokens: String,
}

impl Line {
    pub async fn of(shop: &Shop) -> Self {
        let client = redis::Client::open(services().running.redis_url.as_str()).unwrap();
        // On a busy machine, behind hundreds of requests, Redis may take its time.
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let redis = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        Self { redis, tokens: format!("{}token:*", shop.prefix) }
    }

    pub async fn length(&mut self) -> usize {
        self.tokens().await.len()
    }

    /// Waits until there are so many.
    pub async fn until(&mut self, requests: usize, what: &str) {
        until(what, async || self.length().await == requests).await;
    }

    async fn tokens(&mut self) -> Vec<String> {
        let mut keys = redis::cmd("KEYS");
        keys.arg(&self.tokens).query_async(&mut self.redis).await.unwrap()
    }

    /// How many milliseconds each token has left.
    pub async fn times_left(&mut self) -> Vec<i64> {
        let mut times = Vec::new();
        for token in self.tokens().await {
            let mut left = redis::cmd("PTTL");
            times.push(left.arg(token).query_async(&mut self.redis).await.unwrap());
        }
        times
    }
}

/// A barrier before one key.
pub struct Barrier {
    guards: Guards,
    pub line: Line,
}

impl Barrier {
    /// Takes the lock of that item.
    pub async fn before_item(shop: &Shop, sku: &str) -> Self {
        Self::before(shop, &format!("{{sku:{sku}}}")).await
    }

    /// The same when the locks of keys whose commands are done have expired, so that the length of
    /// the queue is what is sent from then on.
    pub async fn before_item_alone(shop: &Shop, sku: &str) -> Self {
        shop.until_keys_expired().await;
        Self::before_item(shop, sku).await
    }

    /// Takes the lock of that name: `{sku:…}` or `{user:…}`.
    pub async fn before(shop: &Shop, key: &str) -> Self {
        let url = services().running.redis_url.as_str();
        let settings = Settings { prefix: shop.prefix.clone(), ..Settings::default() };
        let locks = Locks::new(Redis::open(url).unwrap(), settings);
        let ask = AcquireRequest {
            kind: LockKind::Fenced,
            wait: Wait::Notify,
            ttl: None,
            deadline: Instant::now() + Duration::from_secs(5),
            keys: &[LockKey::new(key).unwrap()],
        };
        let AcquireOutcome::Acquired(guards) = locks.acquire(ask).await.unwrap() else {
            panic!("{key} is taken");
        };
        Self { guards, line: Line::of(shop).await }
    }

    /// Waits until so many requests are in line.
    pub async fn until_queued(&mut self, requests: usize) {
        self.line.until(requests, &format!("{requests} requests are in line")).await;
    }

    /// Releases the lock.
    pub async fn open(self) {
        self.guards.release().await;
    }
}

impl Shop {
    /// Waits until no key is locked any more: those of finished commands expire by themselves.
    pub async fn until_keys_expired(&self) {
        Line::of(self).await.until(0, "no key is locked any more").await;
    }

    /// Two replicas on a Redis that is all theirs.
    pub async fn with_its_own_redis() -> (Self, Running) {
        Self::with_its_own_redis_and(&[]).await
    }

    /// The same, with more environment for the replicas.
    pub async fn with_its_own_redis_and(env: &[(&str, &str)]) -> (Self, Running) {
        let redis = tokio::task::spawn_blocking(|| topology::start(Topology::Redis));
        let redis = redis.await.unwrap().expect("redis-server is there");
        let env = [env, &[("REDIS_URL", redis.url.as_str())]].concat();
        (Self::start_with(2, &env).await, redis)
    }

    /// An item of the shop's own, by sku: what it does counts in the audit.
    pub async fn shop_item(&self, stock: i64, price_cents: i64) -> String {
        let admin = self.sign_in("admin").await;
        let sku = format!("item-{}", Uuid::new_v4().simple());
        let item =
            json!({ "sku": sku, "name": "Item", "price_cents": price_cents, "stock": stock });
        let item = self.request(&admin, Method::POST, 0, "/api/items").json(&item);
        body(item.send().await.unwrap(), StatusCode::CREATED).await;
        sku
    }

    /// Puts so many more on the shelf.
    pub async fn restock(&self, sku: &str, delta: i64) {
        let admin = self.sign_in("admin").await;
        let path = format!("/api/items/{sku}/stock");
        let more = json!({ "delta": delta, "reason": "restock" });
        let more = self.request(&admin, Method::POST, 0, &path).json(&more);
        body(more.send().await.unwrap(), StatusCode::OK).await;
    }

    /// In how many transactions orders were written.
    pub async fn order_transactions(&self) -> i64 {
        self.number("select count(distinct xmin::text) from stock_ledger where reason = 'order'")
            .await
    }
}
