//! What a lesson looks at beside the answers: the lock's own key in Redis, and who is still held.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::stage::{Answer, Asking, Stage, Wish};
use crate::shop::Sku;

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    Gone,
    /// The key is there, and ends by itself after so long.
    In(Duration),
    Never,
}

impl Stage {
    /// A lesson about two replicas can't be played with one.
    pub fn needs_two(&self) -> anyhow::Result<()> {
        ensure!(self.replicas() >= 2, "it needs two replicas: `holdfast up --replicas 2`");
        Ok(())
    }

    pub async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        self.house.redis().await
    }

    /// A name in Redis that nobody else has, and that is swept away after the run.
    pub fn own_key(&self, name: &str) -> String {
        format!("{}{}:{name}", super::house::OWN_KEYS, Uuid::now_v7().simple())
    }

    /// Who holds an item, as the lock's value says; `None` when nobody does.
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

    /// Deletes an item's lock by hand; whether there was one.
    pub async fn unlock_by_hand(&self, sku: &Sku) -> anyhow::Result<bool> {
        let mut redis = self.redis().await?;
        Ok(redis::cmd("DEL").arg(lock(sku)).query_async::<u32>(&mut redis).await? == 1)
    }

    /// Waits until nobody holds the item any more, by Redis's own word.
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

    /// Waits until so many wait for the item, in and before the queue, at that request's replica.
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

    /// An order of the lab's first buyer, as a replica reads it.
    pub async fn order_as_read(&self, replica: usize, id: Uuid) -> anyhow::Result<Value> {
        let (buyer, path) = (&self.house.buyers[0], format!("/api/orders/{id}"));
        let (status, body) = self.ask(buyer, self.replica(replica), "GET", &path).await?;
        ensure!(status == 200, "an order can't be read: {status}");
        Ok(serde_json::from_slice(&body)?)
    }

    /// Resumes a held request as often as it retries to its point, and waits for its answer.
    pub async fn press_on(&self, asking: Asking) -> anyhow::Result<Answer> {
        while !asking.answer.is_finished() {
            // Not held, when it is between two attempts.
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
        wish: &Wish<'_>,
    ) -> anyhow::Result<Asking> {
        let asking = self.order(label, replica, sku, wish);
        self.until_held(&asking).await?;
        Ok(asking)
    }

    /// Orders one unit, and waits for the answer.
    pub async fn ordered(
        &self,
        label: &str,
        replica: usize,
        sku: &Sku,
        wish: &Wish<'_>,
    ) -> anyhow::Result<Answer> {
        self.answer(self.order(label, replica, sku, wish)).await
    }

    /// Lets a held request go on, and waits for its answer.
    pub async fn finish(&self, asking: Asking) -> anyhow::Result<Answer> {
        self.let_go(&asking).await?;
        self.answer(asking).await
    }
}

/// A line, as the API says it.
#[derive(Debug, Deserialize)]
struct QueueThere {
    key: String,
    inside: usize,
    outside: usize,
}

impl Answer {
    /// What there was before the order; that it was placed is what the lesson relies on.
    pub fn sold_from(&self) -> anyhow::Result<i64> {
        self.before().with_context(|| format!("not placed: {:?} {}", self.status, self.body))
    }
}

/// Waits until that is so; fails after longer than anything that a lesson waits for.
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
