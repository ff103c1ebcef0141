//! A lock that the test holds: requests queue up behind it until the test releases it, so the test
//! decides which commands form a batch.

use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks, Redis, Settings,
};
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use crate::topology::{self, RunningServers, Topology};
use crate::{CONDITION_TIMEOUT, TestShop, services, until};

/// The requests of a shop that are queued or executed, counted by their key locks in Redis.
pub struct InFlightRequests {
    redis: redis::aio::MultiplexedConnection,
    tokens: String,
}

impl InFlightRequests {
    pub async fn of(shop: &TestShop) -> Self {
        let client = redis::Client::open(services().running.redis_url.as_str()).unwrap();
        // On a busy machine, behind hundreds of requests, Redis may respond late.
        let with_timeout =
            redis::AsyncConnectionConfig::new().set_response_timeout(Some(CONDITION_TIMEOUT));
        let redis =
            client.get_multiplexed_async_connection_with_config(&with_timeout).await.unwrap();
        Self { redis, tokens: format!("{}token:*", shop.prefix) }
    }

    pub async fn count(&mut self) -> usize {
        self.tokens().await.len()
    }

    pub async fn until(&mut self, requests: usize, what: &str) {
        until(what, async || self.count().await == requests).await;
    }

    async fn tokens(&mut self) -> Vec<String> {
        let mut keys = redis::cmd("KEYS");
        keys.arg(&self.tokens).query_async(&mut self.redis).await.unwrap()
    }
}

pub struct Barrier {
    guards: Guards,
    pub in_flight: InFlightRequests,
}

impl Barrier {
    /// Acquires the lock of that item.
    pub async fn before_item(shop: &TestShop, sku: &str) -> Self {
        Self::before(shop, &format!("{{sku:{sku}}}")).await
    }

    /// The same, once the key locks of finished commands have expired, so that only later requests
    /// count as queued.
    pub async fn before_idle_item(shop: &TestShop, sku: &str) -> Self {
        shop.until_keys_expired().await;
        Self::before_item(shop, sku).await
    }

    /// Acquires the lock of that name: `{sku:…}` or `{user:…}`.
    pub async fn before(shop: &TestShop, key: &str) -> Self {
        let url = services().running.redis_url.as_str();
        let settings = Settings::default().with_key_prefix(&shop.prefix);
        let locks = Locks::new(Redis::open(url).unwrap(), settings).unwrap();
        let keys = [LockKey::new(key).unwrap()];
        let request = AcquireRequest::new(LockKind::Fenced, &keys)
            .with_deadline(Instant::now() + Duration::from_secs(5));
        let AcquireOutcome::Acquired(guards) = locks.acquire(request).await.unwrap() else {
            panic!("{key} is held");
        };
        Self { guards, in_flight: InFlightRequests::of(shop).await }
    }

    pub async fn until_queued(&mut self, requests: usize) {
        self.in_flight.until(requests, &format!("{requests} requests are queued")).await;
    }

    pub async fn open(self) {
        self.guards.release().await;
    }
}

pub async fn own_redis() -> RunningServers {
    let redis = tokio::task::spawn_blocking(|| topology::start(Topology::Redis));
    redis.await.unwrap().expect("redis-server is installed")
}

impl TestShop {
    /// Waits until no key is locked: the locks of finished commands expire.
    pub async fn until_keys_expired(&self) {
        InFlightRequests::of(self).await.until(0, "no key is locked").await;
    }

    /// Two replicas on a Redis of their own.
    pub async fn with_own_redis() -> (Self, RunningServers) {
        Self::with_own_redis_and(&[]).await
    }

    pub async fn with_own_redis_and(env: &[(&str, &str)]) -> (Self, RunningServers) {
        let redis = own_redis().await;
        let env = [env, &[("REDIS_URL", redis.url.as_str())]].concat();
        (Self::start_with(2, &env).await, redis)
    }

    /// Creates an item of the shop, which the audit covers; returns its sku.
    pub async fn shop_item(&self, stock: i64, price_cents: i64) -> String {
        let admin = self.sign_in("admin").await;
        let sku = format!("item-{}", Uuid::new_v4().simple());
        let item =
            json!({ "sku": sku, "name": "Item", "price_cents": price_cents, "stock": stock });
        admin.creates_item(&item).ok().await;
        sku
    }

    pub async fn restock(&self, sku: &str, delta: i64) {
        let admin = self.sign_in("admin").await;
        admin.restocks(sku, delta).ok().await;
    }

    pub async fn order_transactions(&self) -> i64 {
        self.number("select count(distinct xmin::text) from stock_ledger where reason = 'order'")
            .await
    }
}
