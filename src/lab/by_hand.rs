//! Locks that a lesson acquires directly, as a separate process does, without the shop.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::stage::Stage;
use crate::lock::{AcquireOutcome, AcquireRequest, Guards, Holder, LockKey, LockKind, Locks};
use crate::lock::{Redis, Settings, Wait};

/// Acquire timeout of a lesson's locks.
const PATIENCE: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub enum Got {
    Lock(Guards),
    /// Another owner held the lock during the whole wait.
    Nothing {
        waited: Duration,
        holder: Holder,
    },
}

impl Got {
    /// Returns the acquired lock.
    ///
    /// # Errors
    /// If the lock was busy, which the lesson does not expect.
    pub fn lock(self) -> anyhow::Result<Guards> {
        match self {
            Got::Lock(guards) => Ok(guards),
            Got::Nothing { holder, .. } => bail!("the lock is taken: {holder:?}"),
        }
    }

    pub fn is_nothing(&self) -> bool {
        matches!(self, Got::Nothing { .. })
    }
}

/// Creates the lock client of a further process on the Redis at `url`.
pub(super) fn process(url: &str, prefix: &str, name: &str) -> anyhow::Result<Locks> {
    let settings = Settings {
        prefix: prefix.to_owned(),
        name: Some(name.to_owned()),
        timeout: PATIENCE,
        ..Settings::default()
    };
    Ok(Locks::new(Redis::open(url)?, settings))
}

/// Acquires a lock of `kind`, or returns the holder.
pub(super) async fn take(
    locks: &Locks,
    kind: LockKind,
    wait: Wait,
    key: &LockKey,
    ttl: Option<Duration>,
) -> anyhow::Result<Got> {
    let began = Instant::now();
    let deadline = began + PATIENCE;
    let keys = std::slice::from_ref(key);
    Ok(match locks.acquire(AcquireRequest { kind, wait, ttl, deadline, keys }).await? {
        AcquireOutcome::Acquired(guards) => Got::Lock(guards),
        AcquireOutcome::Busy(holder) => Got::Nothing { waited: began.elapsed(), holder },
        AcquireOutcome::TimedOut { waited, holder } => Got::Nothing { waited, holder },
    })
}

impl Stage {
    /// Creates the lock client of a further process on the shop's Redis, with keys under `prefix`.
    pub fn process(&self, prefix: &str, name: &str) -> anyhow::Result<Locks> {
        process(&self.house.redis_url, prefix, name).context("the shop's Redis")
    }
}
