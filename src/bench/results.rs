//! The results of a benchmark, as written to JSON.

use serde::Serialize;

use super::goals::Goal;
use super::runs::{BenchRunResult, REPLICAS, Spread, Task};

/// The source of table and picture.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) method: Method,
    pub(super) runs: Vec<BenchRunResult>,
    pub(super) figures: Vec<Goal>,
    /// Strategies that were not measured, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) holdfast: &'static str,
    pub(super) cores: usize,
    pub(super) cpu: String,
    pub(super) postgres: String,
    pub(super) redis: String,
    /// If these are not the servers of a temporary shop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) yours: Option<SharedServers>,
}

/// The user's own servers, as seen from this machine.
#[derive(Debug, Serialize)]
pub(super) struct SharedServers {
    /// Medians of a message's round trip.
    pub(super) postgres_ms: f64,
    pub(super) redis_ms: f64,
    pub(super) fsync: String,
    pub(super) synchronous_commit: String,
    /// Connections to Postgres of each replica.
    pub(super) pool_size: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Method {
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) connections: usize,
}

impl Results {
    pub(super) fn hot(&self) -> impl Iterator<Item = &BenchRunResult> {
        self.of_task(Task::Hot)
    }

    /// Returns the responses per second without the work.
    pub(super) fn no_op(&self) -> Option<Spread> {
        self.of_task(Task::NoOp).next()?.per_second
    }

    /// Returns the runs of the mixed load, beginning with that of one replica.
    pub(super) fn mixed(&self) -> impl Iterator<Item = &BenchRunResult> {
        self.runs.iter().filter(|result| result.run.task.is_mixed())
    }

    fn of_task(&self, task: Task) -> impl Iterator<Item = &BenchRunResult> {
        let clients = self.method.connections;
        self.runs.iter().filter(move |result| {
            let run = result.run;
            run.task == task && run.clients == clients && run.replicas == REPLICAS
        })
    }
}
