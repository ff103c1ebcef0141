//! Controls the replicas' order expiry workers for a lesson. A replica counts from the last one, as
//! in [`Scenario::post`].

use std::time::Duration;

use holdfast_lock::clock::monotonic_us;
use serde_json::{Value, json};

use super::poll::poll;
use super::run::{Lane, LaneEvent};
use super::scenario::Scenario;
use crate::messages::message;
use crate::shop::Sku;

#[derive(Debug)]
pub struct PausedWorker {
    replica: usize,
    lane: Lane,
}

impl Scenario {
    /// Makes a replica's worker idle for `length`, from now on.
    pub async fn idle_worker(&self, replica: usize, length: Duration) -> anyhow::Result<()> {
        self.control_worker(replica, &json!({ "rest_ms": u64::try_from(length.as_millis())? }))
            .await
    }

    /// Pauses a replica's worker at `point` the next time it has work, which it then does under
    /// `strategy`.
    pub async fn pause_worker(
        &self,
        replica: usize,
        point: &str,
        strategy: &str,
    ) -> anyhow::Result<()> {
        self.control_worker(replica, &json!({ "pause": point, "lock": strategy })).await
    }

    /// Waits for that. The lock key of `sku` joins the worker's lane to those of its orders.
    pub async fn wait_until_worker_paused(
        &self,
        replica: usize,
        point: &str,
        sku: &Sku,
    ) -> anyhow::Result<PausedWorker> {
        let replica = self.replica_index(replica);
        let paused = poll("the worker is paused at its point", async || {
            let mut paused = self.paused_requests(replica).await?.into_iter();
            Ok(paused.find(|paused| paused.point.name() == point))
        })
        .await?;
        let port = self.cluster.replicas[replica].port().to_string();
        let label = message!("run-label-the-worker");
        let mut lane = Lane::new(paused.request_id, label, port, paused.since_us);
        let event = LaneEvent::new(paused.since_us, point);
        lane.events.push(LaneEvent { key: sku.lock_key().to_string(), ..event });
        Ok(PausedWorker { replica, lane })
    }

    pub async fn resume_worker(&self, mut worker: PausedWorker) -> anyhow::Result<()> {
        self.resume(worker.replica, &worker.lane).await?;
        worker.lane.events.push(LaneEvent::new(monotonic_us(), "resumed"));
        self.record_lane(worker.lane);
        Ok(())
    }

    pub async fn kill_worker(&self, mut worker: PausedWorker) {
        self.cluster.processes.replicas[worker.replica].kill().await;
        worker.lane.events.push(LaneEvent::new(monotonic_us(), "killed"));
        self.record_lane(worker.lane);
    }

    async fn control_worker(&self, replica: usize, instruction: &Value) -> anyhow::Result<()> {
        let replica = self.replica_index(replica);
        self.call(replica, "POST", "/api/lab/worker", &instruction.to_string()).await.map(drop)
    }
}
