//! Injects faults into a run: signals to processes, and a flush of Redis.
//!
//! [`inject`] resumes what it paused; [`ManagedCluster::restore`] does so again at the end of
//! every run, even after an error.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;

use super::cluster::ManagedCluster;
use super::run::{Fault, FaultKind};
use crate::embedded::ProcessHandle;

/// Injects a fault, and ends it. `replicas` is the number of those that receive requests.
pub(super) async fn inject(
    cluster: &ManagedCluster,
    fault: &Fault,
    replicas: usize,
) -> anyhow::Result<()> {
    let length = Duration::from_millis(fault.for_ms);
    // The last replica, because a visitor's pages are likely to come from the first.
    let replica = cluster.processes.replicas[..replicas].last().context("there is no replica")?;
    match fault.kind {
        FaultKind::PauseReplica => pause(replica, length).await,
        FaultKind::KillReplica => replica.kill().await,
        FaultKind::PauseRedis => pause(&cluster.processes.redis, length).await,
        FaultKind::RestartRedis => cluster.processes.redis.kill().await,
        FaultKind::FlushRedis => {
            redis::cmd("FLUSHALL").exec_async(&mut cluster.redis().await?).await?;
        }
        FaultKind::PauseNode => {
            let node = cluster.processes.nodes.first();
            pause(node.context("this shop has no quorum; start it with --redlock 3")?, length)
                .await;
        }
    }
    Ok(())
}

async fn pause(process: &ProcessHandle, length: Duration) {
    process.pause().await;
    sleep(length).await;
    process.resume().await;
}
