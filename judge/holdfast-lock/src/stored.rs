//! `fenced` with fences that survive Redis: Postgres keeps the highest one of each key, and a grant
//! that is not above it raises its own.

use std::time::Duration;

use anyhow::Context;
use holdfast_lock::{Error, FencedGuard, LockKey, Locks, Released};
use judge_adapter::{About, Init};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::time::Instant;

/// Two processes may run it at once, and `if not exists` alone would let one of them fail.
const CREATE_TABLE: &str = "do $$ begin
    perform pg_advisory_xact_lock(hashtext('highest_fences'));
    create table if not exists highest_fences (key text primary key, fence bigint not null);
end $$";

/// Stores a fence if it is above the stored one. Returns whether it was, and the stored one.
const STORE: &str = "with stored as (
    insert into highest_fences as highest (key, fence) values ($1, $2)
    on conflict (key) do update set fence = excluded.fence where highest.fence < excluded.fence
    returning fence
) select exists (select from stored),
    coalesce((select fence from highest_fences where key = $1), $2)";

pub struct StoredFences {
    locks: Locks,
    pool: PgPool,
}

impl StoredFences {
    pub async fn open(init: &Init) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new().max_connections(4).connect(&init.database_url).await?;
        sqlx::query(CREATE_TABLE).execute(&pool).await.context("the table of the fences")?;

        Ok(Self { locks: crate::open_locks(init)?, pool })
    }

    /// Stores the fence of this guard, raised if it must be. Returns `None` if the lock was lost.
    ///
    /// The holder that Redis knows is the only one that can raise its fence. So of two that believe
    /// to hold the lock, the one that came later has the higher fence.
    async fn store_fence(
        &self,
        key: &LockKey,
        mut guard: FencedGuard,
    ) -> anyhow::Result<Option<FencedGuard>> {
        loop {
            let fence = guard.fence();
            let (is_stored, highest): (bool, i64) =
                sqlx::query_as(STORE).bind(key.as_str()).bind(fence).fetch_one(&self.pool).await?;
            if is_stored {
                return Ok(Some(guard));
            }

            if guard.raise_fence(highest.max(fence)).await?.is_none() {
                return Ok(None);
            }
        }
    }
}

impl judge_adapter::Locks for StoredFences {
    type Lease = FencedGuard;

    fn about(&self) -> About {
        let name = format!("holdfast-lock {} stored", env!("CARGO_PKG_VERSION"));
        About { name, fencing: true, renews: true }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<FencedGuard>> {
        let key = LockKey::new(key)?;
        let until = Instant::now() + wait;
        loop {
            let guard = if wait.is_zero() {
                self.locks.try_lock(&key).await?
            } else {
                let left = until.saturating_duration_since(Instant::now());
                match self.locks.lock_for(&key, left).await {
                    Err(Error::TimedOut { .. }) => None,
                    other => Some(other?),
                }
            };
            let Some(guard) = guard else { return Ok(None) };

            if let Some(guard) = self.store_fence(&key, guard).await? {
                return Ok(Some(guard));
            }
        }
    }

    async fn release(&self, guard: FencedGuard) -> anyhow::Result<bool> {
        match guard.release().await {
            Released::Held => Ok(true),
            Released::Lost => Ok(false),
            _ => anyhow::bail!("Redis does not respond"),
        }
    }

    fn fence(&self, guard: &FencedGuard) -> Option<i64> {
        Some(guard.fence())
    }
}
