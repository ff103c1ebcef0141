//! A delay queue on a sorted set in Redis, as many shops have one. Lesson `unpaid` shows what it
//! promises: an entry is delivered at least once, unless Redis loses it.

use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

/// Time for which a claimed entry is hidden from other workers.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct DelayQueue {
    redis: MultiplexedConnection,
    key: String,
}

impl DelayQueue {
    pub(super) fn new(redis: MultiplexedConnection, key: String) -> Self {
        Self { redis, key }
    }

    /// Adds an entry that is due after `delay`, by Redis's clock.
    pub(super) async fn add(&mut self, id: Uuid, delay: Duration) -> anyhow::Result<()> {
        let (seconds, us): (u64, u64) = redis::cmd("TIME").query_async(&mut self.redis).await?;
        let due = u128::from(seconds * 1_000 + us / 1_000) + delay.as_millis();
        let mut add = redis::cmd("ZADD");
        add.arg(&self.key).arg(due.to_string()).arg(id.to_string());
        Ok(add.exec_async(&mut self.redis).await?)
    }

    pub(super) async fn claim(&mut self) -> anyhow::Result<Option<Uuid>> {
        let script = Script::new(include_str!("claim.lua"));
        let mut claim = script.key(&self.key);
        claim.arg(u64::try_from(VISIBILITY_TIMEOUT.as_millis())?);
        let claimed: Option<String> = claim.invoke_async(&mut self.redis).await?;
        Ok(claimed.map(|id| Uuid::parse_str(&id)).transpose()?)
    }

    pub(super) async fn remove(&mut self, id: Uuid) -> anyhow::Result<()> {
        let mut remove = redis::cmd("ZREM");
        remove.arg(&self.key).arg(id.to_string());
        Ok(remove.exec_async(&mut self.redis).await?)
    }
}
