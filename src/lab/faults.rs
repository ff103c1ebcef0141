//! What goes wrong during a run, on purpose and really: signals to processes, words to Redis.
//!
//! What lasts is undone by whoever did it; [`super::house::House::restore`] sees to it once more at
//! the end of every run, whatever happened in between.

use std::time::Duration;

use tokio::time::sleep;

use super::house::House;
use super::run::{Fault, FaultKind};

/// Does it, when its time has come, and undoes it.
pub(super) async fn inject(house: &House, fault: &Fault) -> anyhow::Result<()> {
    sleep(Duration::from_millis(fault.at_ms)).await;
    let length = Duration::from_millis(fault.for_ms);
    match fault.kind {
        FaultKind::PauseReplica => {
            house.hands.replicas[0].pause().await;
            sleep(length).await;
            house.hands.replicas[0].resume().await;
        }
        FaultKind::KillReplica => house.hands.replicas[0].kill().await,
        FaultKind::PauseRedis => {
            house.hands.redis.pause().await;
            sleep(length).await;
            house.hands.redis.resume().await;
        }
        FaultKind::RestartRedis => house.hands.redis.kill().await,
        FaultKind::FlushRedis => {
            redis::cmd("FLUSHALL").exec_async(&mut house.redis().await?).await?;
        }
    }
    Ok(())
}
