//! The PgAdvisoryLock of sqlx behind the judge.

use std::time::Duration;

use judge_adapter::{About, Init, serve};
use sqlx::Either;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgPool, PgPoolOptions, Postgres};
use tokio::time::timeout;

/// More than one per client: a wait that timed out occupies its connection until it is granted.
const MAX_CONNECTIONS: u32 = 32;

struct Advisory(PgPool);

impl judge_adapter::Locks for Advisory {
    type Lease = PgAdvisoryLockGuard<PoolConnection<Postgres>>;

    fn about(&self) -> About {
        About { name: "sqlx 0.9.0 PgAdvisoryLock".to_owned(), fencing: false, renews: false }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<Self::Lease>> {
        let lock = PgAdvisoryLock::new(key);
        let connection = self.0.acquire().await?;
        if wait.is_zero() {
            return Ok(match lock.try_acquire(connection).await? {
                Either::Left(guard) => Some(guard),
                Either::Right(_connection) => None,
            });
        }
        // `acquire` is cancel safe.
        Ok(timeout(wait, lock.acquire(connection)).await.ok().transpose()?)
    }

    async fn release(&self, guard: Self::Lease) -> anyhow::Result<bool> {
        // An error means that the connection has ended, and the lock with it.
        Ok(guard.release_now().await.is_ok())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    serve(async |init: Init| {
        let options = PgPoolOptions::new().max_connections(MAX_CONNECTIONS);
        Ok(Advisory(options.connect(&init.database_url).await?))
    })
    .await
}
