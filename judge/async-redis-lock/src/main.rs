//! async-redis-lock behind the judge.

use std::time::Duration;

use async_redis_lock::{Error, Lock, Locker, Options};
use judge_adapter::{About, Init, serve};

struct AsyncRedisLock {
    locker: Locker,
    ttl: Duration,
}

impl judge_adapter::Locks for AsyncRedisLock {
    type Lease = Lock;

    fn about(&self) -> About {
        About { name: "async-redis-lock 0.4.0".to_owned(), fencing: false, renews: true }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<Lock>> {
        // The documentation recommends a third of the TTL.
        let options = Options::new().ttl(self.ttl).extend(self.ttl / 3).timeout(Some(wait));
        match self.locker.acquire_with_options(&options, key).await {
            Ok(lock) => Ok(Some(lock)),
            Err(Error::Timeout) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, lock: Lock) -> anyhow::Result<bool> {
        match lock.release().await {
            Ok(()) => Ok(true),
            Err(Error::IdNotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    serve(async |init: Init| {
        let locker = Locker::from_redis_url(&init.redis_url).await?;
        Ok(AsyncRedisLock { locker, ttl: init.ttl() })
    })
    .await
}
