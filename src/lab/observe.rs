//! State that a lesson observes besides the responses: lock keys in Redis, and queues.

use anyhow::ensure;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use tokio::time::sleep;
use uuid::Uuid;

use super::cluster::LESSON_KEY_PREFIX;
use super::poll::{POLL_INTERVAL, wait_until};
use super::request::{InFlightRequest, LabResponse};
use super::scenario::Scenario;
use crate::shop::Sku;

impl Scenario {
    pub fn require_two_replicas(&self) -> anyhow::Result<()> {
        ensure!(
            self.replica_count() >= 2,
            "this lesson needs two replicas: `holdfast up --replicas 2`"
        );
        Ok(())
    }

    pub async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        self.cluster.redis().await
    }

    /// Returns a unique Redis key, which is deleted after the run.
    pub fn unique_key(&self, name: &str) -> String {
        format!("{LESSON_KEY_PREFIX}{}:{name}", Uuid::now_v7().simple())
    }

    /// Returns the value of an item's lock key; `None` if the key does not exist.
    pub async fn holder(&self, sku: &Sku) -> anyhow::Result<Option<String>> {
        self.query_lock("GET", sku).await
    }

    pub async fn is_locked_forever(&self, sku: &Sku) -> anyhow::Result<bool> {
        Ok(self.query_lock::<i64>("PTTL", sku).await? == -1)
    }

    pub async fn delete_lock(&self, sku: &Sku) -> anyhow::Result<bool> {
        Ok(self.query_lock::<u32>("DEL", sku).await? == 1)
    }

    async fn query_lock<T: FromRedisValue>(&self, command: &str, sku: &Sku) -> anyhow::Result<T> {
        let key = format!("holdfast:lock:{}", sku.lock_key());
        Ok(redis::cmd(command).arg(key).query_async(&mut self.redis().await?).await?)
    }

    pub async fn wait_until_free(&self, sku: &Sku) -> anyhow::Result<()> {
        wait_until("the lease expires", async || Ok(self.holder(sku).await?.is_none())).await
    }

    /// Waits until, at the replica of `beside`, the item's queue has `inside` waiters and `outside`
    /// requests wait for a place in it.
    pub async fn wait_until_queued(
        &self,
        beside: &InFlightRequest,
        sku: &Sku,
        (inside, outside): (usize, usize),
    ) -> anyhow::Result<()> {
        let (key, what) = (
            sku.lock_key(),
            format!("{inside} requests are in the queue and {outside} wait for a place"),
        );
        wait_until(&what, async || {
            let queues: Vec<QueueLength> = self.get(beside.replica, "/api/lab/queues").await?;
            let queue = queues.iter().find(|queue| queue.key == key.as_str());
            Ok(queue.is_some_and(|queue| (queue.inside, queue.outside) == (inside, outside)))
        })
        .await
    }

    /// Resumes a request at its point as often as it retries, and waits for its response.
    pub async fn resume_until_done(&self, request: InFlightRequest) -> anyhow::Result<LabResponse> {
        while !request.response.is_finished() {
            // An error between two attempts, when the request is not paused.
            let _ = self.resume_request(&request).await;
            sleep(POLL_INTERVAL).await;
        }
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
