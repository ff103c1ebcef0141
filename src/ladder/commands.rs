//! The commands of a rung: what they are sent with, and the probe points between them.

use holdfast_lock::redis::Error as RedisError;
use holdfast_lock::{LockKey, Redis};
use redis::{Cmd, FromRedisValue};

use crate::probe::{Point, Probe, ProbedValue};

/// A lock to acquire or release by single commands.
#[derive(Debug)]
pub(super) struct RungCommands {
    /// Key in Redis.
    pub(super) key: String,
    /// Value of the key, unique per attempt.
    pub(super) owner: String,
    /// Lifetime of the key, for rungs with an expiry.
    pub(super) ttl_ms: u64,
    pub(super) redis: Redis,
    pub(super) name: LockKey,
    pub(super) probe: Probe,
}

impl RungCommands {
    /// Sends one command, in one round trip.
    pub(super) async fn send<T>(&self, command: &Cmd) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        self.redis.query(command.clone()).await
    }

    /// Passes a probe point between two commands, where the lab can pause the request.
    pub(super) async fn pass(&self, point: Point) {
        self.probe.at(point, [ProbedValue::key(self.name.as_str())]).await;
    }
}
