//! State that a lesson observes besides the responses: lock keys in Redis, queues, orders.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::headers::LabHeaders;
use super::stage::{Answer, Asking, Stage};
use crate::shop::Sku;

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    Gone,
    /// The key expires after this time.
    In(Duration),
    Never,
}

impl Stage {
    /// Returns an error unless there are two replicas.
    pub fn needs_two(&self) -> anyhow::Result<()> {
        ensure!(self.replicas() >= 2, "it needs two replicas: `holdfast up --replicas 2`");
        Ok(())
    }

    pub async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        self.house.redis().await
    }

    /// Returns a unique Redis key, which is deleted after the run.
    pub fn own_key(&self, name: &str) -> String {
        format!("{}{}:{name}", super::house::OWN_KEYS, Uuid::now_v7().simple())
    }

    /// Returns the value of an item's lock key; `None` if the key does not exist.
    pub async fn holder(&self, sku: &Sku) -> anyhow::Result<Option<String>> {
        let mut redis = self.redis().await?;
        Ok(redis::cmd("GET").arg(lock(sku)).query_async(&mut redis).await?)
    }

    pub async fn expiry(&self, sku: &Sku) -> anyhow::Result<Expiry> {
        let mut redis = self.redis().await?;
        let left: i64 = redis::cmd("PTTL").arg(lock(sku)).query_async(&mut redis).await?;
        Ok(match u64::try_from(left) {
            Ok(left) => Expiry::In(Duration::from_millis(left)),
            Err(_) if left == -1 => Expiry::Never,
            Err(_) => Expiry::Gone,
        })
    }

    /// Deletes an item's lock key; returns whether it existed.
    pub async fn unlock_by_hand(&self, sku: &Sku) -> anyhow::Result<bool> {
        let mut redis = self.redis().await?;
        Ok(redis::cmd("DEL").arg(lock(sku)).query_async::<u32>(&mut redis).await? == 1)
    }

    /// Waits until an item's lock key does not exist in Redis.
    pub async fn until_free(&self, sku: &Sku) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.holder(sku).await?.is_some() {
            if Instant::now() > end {
                bail!("the lease did not end");
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Waits until, at the replica of `beside`, the item's queue has `inside` waiters and `outside`
    /// requests wait for a place in it.
    pub async fn until_in_line(
        &self,
        beside: &Asking,
        sku: &Sku,
        (inside, outside): (usize, usize),
    ) -> anyhow::Result<()> {
        let (key, end) = (sku.lock_key(), Instant::now() + PATIENCE);
        loop {
            let admin = &self.house.admin;
            let (status, body) = self.ask(admin, beside.replica, "GET", "/api/lab/queues").await?;
            ensure!(status == 200, "a replica does not say who is in line: {status}");
            let queues: Vec<QueueThere> = serde_json::from_slice(&body)?;
            let there = queues.iter().find(|queue| queue.key == key.as_str());
            if there.is_some_and(|there| (there.inside, there.outside) == (inside, outside)) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{inside} inside and {outside} outside are wanted, there are: {there:?}");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns an order of the lab's first buyer, as a replica reads it.
    pub async fn order_as_read(&self, replica: usize, id: Uuid) -> anyhow::Result<Value> {
        let (buyer, path) = (&self.house.buyers[0], format!("/api/orders/{id}"));
        let (status, body) = self.ask(buyer, self.replica(replica), "GET", &path).await?;
        ensure!(status == 200, "an order can't be read: {status}");
        Ok(serde_json::from_slice(&body)?)
    }

    /// Resumes a request at its point as often as it retries, and waits for its response.
    pub async fn press_on(&self, asking: Asking) -> anyhow::Result<Answer> {
        while !asking.answer.is_finished() {
            // An error between two attempts, when the request is not held.
            let _ = self.let_go(&asking).await;
            sleep(LOOK_EVERY).await;
        }
        self.answer(asking).await
    }

    /// Orders one unit, and waits until the request is held at its point.
    pub async fn order_held(
        &self,
        label: &str,
        replica: usize,
        sku: &Sku,
        wish: &LabHeaders,
    ) -> anyhow::Result<Asking> {
        let asking = self.order(label, replica, sku, wish);
        self.until_held(&asking).await?;
        Ok(asking)
    }

    /// Orders one unit, and waits for the response.
    pub async fn ordered(
        &self,
        label: &str,
        replica: usize,
        sku: &Sku,
        wish: &LabHeaders,
    ) -> anyhow::Result<Answer> {
        self.answer(self.order(label, replica, sku, wish)).await
    }

    /// Resumes a held request, and waits for its response.
    pub async fn finish(&self, asking: Asking) -> anyhow::Result<Answer> {
        self.let_go(&asking).await?;
        self.answer(asking).await
    }
}

/// A queue, as `GET /api/lab/queues` returns it.
#[derive(Debug, Deserialize)]
struct QueueThere {
    key: String,
    inside: usize,
    outside: usize,
}

impl Answer {
    /// Returns the stock before the order.
    ///
    /// # Errors
    /// If the order was not placed, which the lesson does not expect.
    pub fn sold_from(&self) -> anyhow::Result<i64> {
        self.before().with_context(|| format!("not placed: {:?} {}", self.status, self.body))
    }
}

/// Waits until `condition` holds; fails after 15 s.
pub async fn until<F>(what: &str, condition: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    let end = Instant::now() + PATIENCE;
    while !condition().await? {
        ensure!(Instant::now() < end, "waited in vain until {what}");
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn lock(sku: &Sku) -> String {
    format!("holdfast:lock:{}", sku.lock_key())
}
