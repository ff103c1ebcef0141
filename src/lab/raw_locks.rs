//! Locks that a lesson acquires directly, as a separate process does, without the shop.

use std::time::Duration;

use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks};
use holdfast_lock::{Redis, Settings, Wait};
use tokio::time::Instant;

const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(700);

/// Creates the lock client of a further process on the Redis at `url`, with keys under `prefix`.
pub(super) fn lock_client(url: &str, prefix: &str, name: &str) -> anyhow::Result<Locks> {
    let settings = Settings {
        key_prefix: prefix.to_owned(),
        name: Some(name.to_owned()),
        acquire_timeout: ACQUIRE_TIMEOUT,
        ..Settings::default()
    };
    Ok(Locks::new(Redis::open(url)?, settings)?)
}

/// Acquires a lock of `kind`; returns `None` if another owner held it during the whole wait.
pub(super) async fn acquire(
    locks: &Locks,
    kind: LockKind,
    wait: Wait,
    key: &LockKey,
    ttl: Option<Duration>,
) -> anyhow::Result<Option<Guards>> {
    let (deadline, keys) = (Instant::now() + ACQUIRE_TIMEOUT, std::slice::from_ref(key));
    match locks.acquire(AcquireRequest { kind, wait, ttl, deadline, keys }).await? {
        AcquireOutcome::Acquired(guards) => Ok(Some(guards)),
        AcquireOutcome::Busy(_) | AcquireOutcome::TimedOut { .. } => Ok(None),
    }
}
