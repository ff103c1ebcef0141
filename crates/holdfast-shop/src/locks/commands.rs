//! The commands of a teaching lock on one key.

use std::time::Duration;

use holdfast_lock::redis::Error as RedisError;
use holdfast_lock::{LockKey, Locks, Redis};
use redis::{Cmd, FromRedisValue, cmd};

use crate::probe::{Point, Probe, ProbedValue};

#[derive(Debug)]
pub(super) struct LockCommands {
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) ttl_ms: u64,
    pub(super) redis: Redis,
    pub(super) name: LockKey,
    pub(super) probe: Probe,
}

impl LockCommands {
    /// Creates the commands of the lock on `key`, without an owner yet. A lock without an expiry
    /// ignores `ttl`.
    pub(super) fn new(locks: &Locks, key: &LockKey, ttl: Duration, probe: &Probe) -> Self {
        Self {
            key: locks.redis_key(key),
            owner: String::new(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            redis: locks.redis().clone(),
            name: key.clone(),
            probe: probe.clone(),
        }
    }

    pub(super) async fn send<T>(&self, command: &Cmd) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        self.redis.query(command.clone()).await
    }

    /// Deletes the key of any owner. Returns whether it existed. `GETDEL` deletes as `DEL`, and
    /// returns the value, so that a trace can tell that the lock was another holder's.
    pub(super) async fn delete(&self) -> Result<bool, RedisError> {
        let owner: Option<String> = self.send(cmd("GETDEL").arg(&self.key)).await?;
        if owner.as_ref().is_some_and(|owner| *owner != self.owner) {
            self.note("foreign");
        }
        Ok(owner.is_some())
    }

    pub(super) async fn pass(&self, point: Point) {
        self.probe.at(point, [ProbedValue::key(self.name.as_str())]).await;
    }

    pub(super) fn note(&self, event: &'static str) {
        self.probe.note(event, [ProbedValue::key(self.name.as_str())]);
    }
}
