//! Locks that a lesson acquires directly, as a separate process does, without the shop.

use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, Holder, LockKey, LockKind, Locks};
use holdfast_lock::{Redis, Settings, Wait};
use tokio::time::Instant;

use super::scenario::Scenario;

/// Acquire timeout of a lesson's locks.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub enum LockAttempt {
    Acquired(Guards),
    /// Another owner held the lock during the whole wait.
    Busy {
        waited: Duration,
        holder: Holder,
    },
}

impl LockAttempt {
    /// Returns the acquired lock.
    ///
    /// # Errors
    /// If the lock was busy, which the lesson does not expect.
    pub fn acquired(self) -> anyhow::Result<Guards> {
        match self {
            LockAttempt::Acquired(guards) => Ok(guards),
            LockAttempt::Busy { holder, .. } => bail!("the lock is taken: {holder:?}"),
        }
    }

    pub fn is_busy(&self) -> bool {
        matches!(self, LockAttempt::Busy { .. })
    }
}

/// Creates the lock client of a further process on the Redis at `url`.
pub(super) fn lock_client(url: &str, prefix: &str, name: &str) -> anyhow::Result<Locks> {
    let settings = Settings {
        key_prefix: prefix.to_owned(),
        name: Some(name.to_owned()),
        acquire_timeout: ACQUIRE_TIMEOUT,
        ..Settings::default()
    };
    Ok(Locks::new(Redis::open(url)?, settings)?)
}

/// Acquires a lock of `kind`, or returns the holder.
pub(super) async fn acquire(
    locks: &Locks,
    kind: LockKind,
    wait: Wait,
    key: &LockKey,
    ttl: Option<Duration>,
) -> anyhow::Result<LockAttempt> {
    let began = Instant::now();
    let deadline = began + ACQUIRE_TIMEOUT;
    let keys = std::slice::from_ref(key);
    Ok(match locks.acquire(AcquireRequest { kind, wait, ttl, deadline, keys }).await? {
        AcquireOutcome::Acquired(guards) => LockAttempt::Acquired(guards),
        AcquireOutcome::Busy(holder) => LockAttempt::Busy { waited: began.elapsed(), holder },
        AcquireOutcome::TimedOut { waited, holder } => LockAttempt::Busy { waited, holder },
    })
}

impl Scenario {
    /// Creates the lock client of a further process on the shop's Redis, with keys under `prefix`.
    pub fn lock_client(&self, prefix: &str, name: &str) -> anyhow::Result<Locks> {
        lock_client(&self.cluster.redis_url, prefix, name).context("the shop's Redis")
    }
}
