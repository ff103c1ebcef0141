//! The Mutex of distkit behind the judge.

use std::time::Duration;

use distkit::lock::{LockError, LockGuardState, LockOptionsBuilder, Mutex, MutexGuard};
use distkit::{DistkitError, DistkitRedisKey};
use judge_adapter::{About, Init, serve};
use redis::aio::ConnectionManager;

struct Distkit {
    connection: ConnectionManager,
    ttl: Duration,
}

impl judge_adapter::Locks for Distkit {
    type Lease = MutexGuard;

    fn about(&self) -> About {
        About { name: "distkit 0.7.1 Mutex".to_owned(), fencing: false, renews: true }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<MutexGuard>> {
        // Its keys have no colons.
        let key = DistkitRedisKey::try_from(key.replace(':', "-"))?;
        let options = LockOptionsBuilder::new(key, self.connection.clone()).ttl(self.ttl).build();
        // A mutex has one owner, so that each acquisition has one of its own.
        let mutex = Mutex::new(options);
        let result = match wait.is_zero() {
            true => mutex.try_lock().await,
            false => mutex.try_lock_with_timeout(wait).await,
        };
        match result {
            Ok(guard) => Ok(Some(guard)),
            Err(DistkitError::LockError(LockError::AcquireFail | LockError::Timeout { .. })) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, guard: MutexGuard) -> anyhow::Result<bool> {
        match guard.release().await {
            Ok(state) => Ok(state != LockGuardState::Lost),
            Err(DistkitError::LockError(LockError::NotOwner)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    serve(async |init: Init| {
        let ttl = init.ttl();
        let connection = redis::Client::open(init.redis_url)?.get_connection_manager().await?;
        Ok(Distkit { connection, ttl })
    })
    .await
}
