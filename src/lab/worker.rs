//! Controls the replicas' order expiry workers for a lesson.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_lock::clock::monotonic_us;

use super::poll::poll;
use super::run::{Lane, LaneEvent};
use super::scenario::Scenario;
use crate::messages::message;
use crate::probe::PausedRequest;
use crate::shop::Sku;

#[derive(Debug)]
pub struct PausedWorker {
    replica: usize,
    paused: PausedRequest,
}

impl Scenario {
    /// Makes a replica's worker idle for `length`, from now on. `replica` counts from the last
    /// replica, as in [`Scenario::post`].
    pub async fn idle_worker(&self, replica: usize, length: Duration) -> anyhow::Result<()> {
        self.control_worker(replica, &format!("{{\"rest_ms\":{}}}", length.as_millis())).await
    }

    /// Pauses a replica's worker at `point` the next time it has work, which it then does under
    /// `strategy`.
    pub async fn pause_worker(
        &self,
        replica: usize,
        point: &str,
        strategy: &str,
    ) -> anyhow::Result<()> {
        let instruction = format!("{{\"pause\":\"{point}\",\"lock\":\"{strategy}\"}}");
        self.control_worker(replica, &instruction).await
    }

    pub async fn wait_until_worker_paused(
        &self,
        replica: usize,
        point: &str,
    ) -> anyhow::Result<PausedWorker> {
        let replica = self.replica_index(replica);
        poll("the worker is paused at its point", async || {
            let mut paused = self.paused_requests(replica).await?.into_iter();
            let paused = paused.find(|paused| paused.point.name() == point);
            Ok(paused.map(|paused| PausedWorker { replica, paused }))
        })
        .await
    }

    /// Resumes a paused worker, and records its lane under the lock key of `sku`.
    pub async fn resume_worker(&self, worker: PausedWorker, sku: &Sku) -> anyhow::Result<()> {
        self.resume_by_id(worker.replica, worker.paused.request_id).await.context("the worker")?;
        self.record_worker_lane(worker, sku, "resumed");
        Ok(())
    }

    /// Kills the worker's replica, which the supervisor restarts, and records the lane.
    pub async fn kill_worker(&self, worker: PausedWorker, sku: &Sku) {
        self.cluster.processes.replicas[worker.replica].kill().await;
        self.record_worker_lane(worker, sku, "killed");
    }

    /// Records the worker's lane: when it was paused, and `event` now.
    fn record_worker_lane(
        &self,
        PausedWorker { replica, paused }: PausedWorker,
        sku: &Sku,
        event: &str,
    ) {
        let at = |t_us: u64, event: &str| LaneEvent {
            t_us: self.since_start_us(t_us),
            event: event.to_owned(),
            key: sku.lock_key().to_string(),
            value: None,
            fence: None,
        };
        let events = vec![at(paused.since_us, paused.point.name()), at(monotonic_us(), event)];
        let label = message!("run-label-the-worker").into();
        let lane = self.new_lane(replica, paused.request_id, label, paused.since_us);
        self.record_lane(Lane { events, ..lane });
    }

    async fn control_worker(&self, replica: usize, instruction: &str) -> anyhow::Result<()> {
        let replica = self.replica_index(replica);
        self.call(replica, "POST", "/api/lab/worker", instruction).await.map(drop)
    }
}
