//! rslock behind the judge.

use std::time::Duration;

use judge_adapter::{About, Init, serve};
use rslock::{Lock, LockError, LockManager};
use tokio::time::Instant;

struct Rslock {
    manager: LockManager,
    ttl: Duration,
}

impl judge_adapter::Locks for Rslock {
    type Lease = Lock;

    fn about(&self) -> About {
        About { name: "rslock 0.10.0".to_owned(), fencing: false, renews: false }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<Lock>> {
        let until = Instant::now() + wait;
        loop {
            // Tries three times, with pauses of up to 0.2 s.
            match self.manager.lock(key, self.ttl).await {
                Ok(lock) => return Ok(Some(lock)),
                // Also the result of a Redis that is away: the error is the same.
                Err(LockError::Unavailable) if Instant::now() >= until => return Ok(None),
                Err(LockError::Unavailable) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The library does not return whether the lock was still held.
    async fn release(&self, lock: Lock) -> anyhow::Result<bool> {
        lock.release().await;
        Ok(true)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    serve(async |init: Init| {
        let ttl = init.ttl();
        Ok(Rslock { manager: LockManager::new(vec![init.redis_url]), ttl })
    })
    .await
}
