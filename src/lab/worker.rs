//! Controls the replicas' order expiry workers for a lesson.

use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_lock::clock::monotonic_us;
use holdfast_lock::{Redis, Settings};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::headers::under;
use super::request::post;
use super::run::{Lane, LaneEvent};
use super::scenario::Scenario;
use crate::jobs::order_expiry::queue::DelayQueue;
use crate::jobs::order_expiry::queue_of;
use crate::load;
use crate::shop::Sku;

const WAIT_TIMEOUT: Duration = Duration::from_secs(12);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct HeldWorker {
    id: Uuid,
    replica: usize,
    point: String,
    since_us: u64,
}

impl Scenario {
    /// Makes a replica's worker idle for `length`, from now on. `replica` counts from the last
    /// replica, as in [`Scenario::post`].
    pub async fn idle_worker(&self, replica: usize, length: Duration) -> anyhow::Result<()> {
        self.control_worker(replica, &format!("{{\"rest_ms\":{}}}", length.as_millis())).await
    }

    /// Holds a replica's worker at `point` the next time it has work, which it then does under
    /// `strategy`.
    pub async fn hold_worker(
        &self,
        replica: usize,
        point: &str,
        strategy: &str,
    ) -> anyhow::Result<()> {
        self.control_worker(replica, &format!("{{\"pause\":\"{point}\",\"lock\":\"{strategy}\"}}"))
            .await
    }

    pub async fn wait_until_worker_held(
        &self,
        replica: usize,
        point: &str,
    ) -> anyhow::Result<HeldWorker> {
        let replica = self.replica_index(replica);
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            let held =
                self.held_requests(replica).await?.into_iter().find(|held| held.point == point);
            if let Some(held) = held {
                let (id, point) = (held.request_id, held.point);
                return Ok(HeldWorker { id, replica, point, since_us: held.since_us });
            }
            if Instant::now() > end {
                bail!("the worker did not come to its point");
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Resumes a held worker, and records its lane under the lock key of `sku`.
    pub async fn resume_worker(&self, worker: HeldWorker, sku: &Sku) -> anyhow::Result<()> {
        self.resume_by_id(worker.replica, worker.id).await.context("the worker")?;
        self.record_worker_lane(worker, sku, "resumed");
        Ok(())
    }

    /// Kills the worker's replica, which the supervisor restarts, and records the lane.
    pub async fn kill_worker(&self, worker: HeldWorker, sku: &Sku) {
        self.cluster.hands.replicas[worker.replica].kill().await;
        self.record_worker_lane(worker, sku, "killed");
    }

    /// Records the worker's lane: when it was held, and `event` now.
    fn record_worker_lane(&self, worker: HeldWorker, sku: &Sku, event: &str) {
        let at = |t_us: u64, event: &str| LaneEvent {
            t_us: self.since_start_us(t_us),
            event: event.to_owned(),
            key: sku.lock_key().to_string(),
            value: None,
            fence: None,
        };
        let events = vec![at(worker.since_us, &worker.point), at(monotonic_us(), event)];
        let label = "the worker".to_owned();
        let lane = self.new_lane(worker.replica, worker.id, label, worker.since_us);
        self.record_lane(Lane { events, ..lane });
    }

    pub fn unpaid_queue(&self) -> anyhow::Result<DelayQueue> {
        Ok(queue_of(Redis::open(&self.cluster.redis_url)?, &Settings::default().key_prefix))
    }

    async fn control_worker(&self, replica: usize, command: &str) -> anyhow::Result<()> {
        let (id, headers) = (Uuid::now_v7(), under("none"));
        let admin = &self.cluster.admin;
        let request = post("/api/lab/worker", admin, &headers, id, id, command);
        let replica = self.cluster.replicas[self.replica_index(replica)];
        match load::send(replica, &request).await? {
            (204, _) => Ok(()),
            (status, body) => {
                bail!("the worker can't be told: {status} {}", String::from_utf8_lossy(&body))
            }
        }
    }
}
