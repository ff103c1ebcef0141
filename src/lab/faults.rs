//! What goes wrong during a run, on purpose and really: signals to processes, words to Redis.
//!
//! What lasts is undone by whoever did it; [`super::house::House::restore`] sees to it once more at
//! the end of every run, whatever happened in between.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;

use super::house::House;
use super::run::{Fault, FaultKind};

/// Does it, and undoes it. `asked` is how many of the replicas are asked at all.
pub(super) async fn inject(house: &House, fault: &Fault, asked: usize) -> anyhow::Result<()> {
    let length = Duration::from_millis(fault.for_ms);
    // The last one: the pages that are looked at are likely to be the first one's.
    let replica = house.hands.replicas[..asked].last().context("there is no replica")?;
    match fault.kind {
        FaultKind::PauseReplica => {
            replica.pause().await;
            sleep(length).await;
            replica.resume().await;
        }
        FaultKind::KillReplica => replica.kill().await,
        FaultKind::PauseRedis => {
            house.hands.redis.pause().await;
            sleep(length).await;
            house.hands.redis.resume().await;
        }
        FaultKind::RestartRedis => house.hands.redis.kill().await,
        FaultKind::FlushRedis => {
            redis::cmd("FLUSHALL").exec_async(&mut house.redis().await?).await?;
        }
        FaultKind::PauseNode => {
            let node = house.hands.nodes.first();
            let node = node.context("this shop has no quorum; start it with --redlock 5")?;
            node.pause().await;
            sleep(length).await;
            node.resume().await;
        }
    }
    Ok(())
}
