//! Locks that a lesson takes itself, as a process of its own would, without the shop.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::stage::Stage;
use crate::lock::{Ask, Guards, Holder, Kind, LockKey, Locks, Outcome, Redis, Settings, Wait};

/// No lock of a lesson is waited for longer, unless it says so.
const PATIENCE: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub enum Got {
    Lock(Guards),
    /// It is somebody else's, and was so for so long.
    Nothing {
        waited: Duration,
        holder: Holder,
    },
}

impl Got {
    /// The lock; that it was had is what the lesson relies on.
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

/// The locks of one more process, over that Redis.
pub(super) fn process(url: &str, prefix: &str, name: &str) -> anyhow::Result<Locks> {
    let settings = Settings {
        prefix: prefix.to_owned(),
        name: Some(name.to_owned()),
        timeout: PATIENCE,
        ..Settings::default()
    };
    Ok(Locks::new(Redis::open(url)?, settings))
}

/// Takes a lock of that kind, or says whose it is.
pub(super) async fn take(
    locks: &Locks,
    kind: Kind,
    wait: Wait,
    key: &LockKey,
    ttl: Option<Duration>,
) -> anyhow::Result<Got> {
    let began = Instant::now();
    let deadline = began + PATIENCE;
    let keys = std::slice::from_ref(key);
    Ok(match locks.acquire(Ask { kind, wait, ttl, deadline, keys }).await? {
        Outcome::Acquired(guards) => Got::Lock(guards),
        Outcome::Busy(holder) => Got::Nothing { waited: began.elapsed(), holder },
        Outcome::TimedOut { waited, holder } => Got::Nothing { waited, holder },
    })
}

impl Stage {
    /// The locks of one more process over the shop's Redis, under names that are nobody else's.
    pub fn process(&self, prefix: &str, name: &str) -> anyhow::Result<Locks> {
        process(&self.house.redis_url, prefix, name).context("the shop's Redis")
    }
}
