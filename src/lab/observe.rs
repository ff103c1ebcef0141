//! State that a lesson observes besides the responses: lock keys in Redis, queues, orders.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::headers::LabHeaders;
use super::scenario::{InFlightRequest, LabResponse, Scenario};
use crate::shop::Sku;

/// Timeout of every wait.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyTtl {
    Gone,
    /// The key expires after this time.
    In(Duration),
    Never,
}

impl Scenario {
    /// Returns an error unless there are two replicas.
    pub fn require_two_replicas(&self) -> anyhow::Result<()> {
        ensure!(self.replica_count() >= 2, "it needs two replicas: `holdfast up --replicas 2`");
        Ok(())
    }

    pub async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        self.cluster.redis().await
    }

    /// Returns a unique Redis key, which is deleted after the run.
    pub fn unique_key(&self, name: &str) -> String {
        format!("{}{}:{name}", super::cluster::LESSON_KEY_PREFIX, Uuid::now_v7().simple())
    }

    /// Returns the value of an item's lock key; `None` if the key does not exist.
    pub async fn holder(&self, sku: &Sku) -> anyhow::Result<Option<String>> {
        let mut redis = self.redis().await?;
        Ok(redis::cmd("GET").arg(lock_name(sku)).query_async(&mut redis).await?)
    }

    pub async fn lock_ttl(&self, sku: &Sku) -> anyhow::Result<KeyTtl> {
        let mut redis = self.redis().await?;
        let left: i64 = redis::cmd("PTTL").arg(lock_name(sku)).query_async(&mut redis).await?;
        Ok(match u64::try_from(left) {
            Ok(left) => KeyTtl::In(Duration::from_millis(left)),
            Err(_) if left == -1 => KeyTtl::Never,
            Err(_) => KeyTtl::Gone,
        })
    }

    /// Deletes an item's lock key; returns whether it existed.
    pub async fn delete_lock(&self, sku: &Sku) -> anyhow::Result<bool> {
        let mut redis = self.redis().await?;
        Ok(redis::cmd("DEL").arg(lock_name(sku)).query_async::<u32>(&mut redis).await? == 1)
    }

    /// Waits until an item's lock key does not exist in Redis.
    pub async fn wait_until_free(&self, sku: &Sku) -> anyhow::Result<()> {
        let end = Instant::now() + WAIT_TIMEOUT;
        while self.holder(sku).await?.is_some() {
            if Instant::now() > end {
                bail!("the lease did not end");
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits until, at the replica of `beside`, the item's queue has `inside` waiters and `outside`
    /// requests wait for a place in it.
    pub async fn wait_until_queued(
        &self,
        beside: &InFlightRequest,
        sku: &Sku,
        (inside, outside): (usize, usize),
    ) -> anyhow::Result<()> {
        let (key, end) = (sku.lock_key(), Instant::now() + WAIT_TIMEOUT);
        loop {
            let admin = &self.cluster.admin;
            let (status, body) = self.send(admin, beside.replica, "GET", "/api/lab/queues").await?;
            ensure!(status == 200, "a replica does not say who is in line: {status}");
            let queues: Vec<QueueLength> = serde_json::from_slice(&body)?;
            let there = queues.iter().find(|queue| queue.key == key.as_str());
            if there.is_some_and(|there| (there.inside, there.outside) == (inside, outside)) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{inside} inside and {outside} outside are wanted, there are: {there:?}");
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns an order of the lab's first buyer, as a replica reads it.
    pub async fn read_order(&self, replica: usize, id: Uuid) -> anyhow::Result<Value> {
        let (buyer, path) = (&self.cluster.buyers[0], format!("/api/orders/{id}"));
        let (status, body) = self.send(buyer, self.replica_index(replica), "GET", &path).await?;
        ensure!(status == 200, "an order can't be read: {status}");
        Ok(serde_json::from_slice(&body)?)
    }

    /// Resumes a request at its point as often as it retries, and waits for its response.
    pub async fn resume_until_done(&self, request: InFlightRequest) -> anyhow::Result<LabResponse> {
        while !request.response.is_finished() {
            // An error between two attempts, when the request is not held.
            let _ = self.resume_request(&request).await;
            sleep(POLL_INTERVAL).await;
        }
        self.response(request).await
    }

    /// Orders one unit, and waits until the request is held at its point.
    pub async fn order_until_held(
        &self,
        label: &str,
        replica: usize,
        sku: &Sku,
        headers: &LabHeaders,
    ) -> anyhow::Result<InFlightRequest> {
        let request = self.order(label, replica, sku, headers);
        self.wait_until_held(&request).await?;
        Ok(request)
    }

    /// Orders one unit, and waits for the response.
    pub async fn place_order(
        &self,
        label: &str,
        replica: usize,
        sku: &Sku,
        headers: &LabHeaders,
    ) -> anyhow::Result<LabResponse> {
        self.response(self.order(label, replica, sku, headers)).await
    }

    /// Resumes a held request, and waits for its response.
    pub async fn finish(&self, request: InFlightRequest) -> anyhow::Result<LabResponse> {
        self.resume_request(&request).await?;
        self.response(request).await
    }
}

/// A queue, as `GET /api/lab/queues` returns it.
#[derive(Debug, Deserialize)]
struct QueueLength {
    key: String,
    inside: usize,
    outside: usize,
}

impl LabResponse {
    /// Returns the stock before the order.
    ///
    /// # Errors
    /// If the order was not placed, which the lesson does not expect.
    pub fn require_placed(&self) -> anyhow::Result<i64> {
        self.stock_before().with_context(|| format!("not placed: {:?} {}", self.status, self.body))
    }
}

/// Waits until `condition` holds; fails after 15 s.
pub async fn wait_until<F>(what: &str, condition: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    let end = Instant::now() + WAIT_TIMEOUT;
    while !condition().await? {
        ensure!(Instant::now() < end, "waited in vain until {what}");
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn lock_name(sku: &Sku) -> String {
    format!("holdfast:lock:{}", sku.lock_key())
}
