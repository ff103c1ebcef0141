//! The teaching locks: their common polling and release. The file of each states when it
//! breaks. Only an explicit release runs its `release`: a cancelled attempt or a dropped lease is
//! released by compare-and-delete, which never touches another owner's lock; under `expire-only`
//! nothing is deleted. Tests: `tests/it/strategy_failures.rs`.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use holdfast_lock::clock::jittered;
use holdfast_lock::redis::Error as RedisError;
use holdfast_lock::{Error, ForeignLease, Locks, Released, Wait};
use tokio::time::{Instant, sleep_until};

use super::commands::LockCommands;
use super::{check_then_del, expire_only, setnx, setnx_expire, ttl};

/// A lease in Redis with a common mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeachingLock {
    Setnx,
    SetnxExpire,
    Ttl,
    CheckThenDel,
    ExpireOnly,
}

impl TeachingLock {
    async fn acquire(self, lock: &LockCommands) -> Result<bool, RedisError> {
        match self {
            TeachingLock::Setnx => setnx::acquire(lock).await,
            TeachingLock::SetnxExpire => setnx_expire::acquire(lock).await,
            TeachingLock::Ttl => ttl::acquire(lock).await,
            TeachingLock::CheckThenDel => check_then_del::acquire(lock).await,
            TeachingLock::ExpireOnly => expire_only::acquire(lock).await,
        }
    }

    async fn release(self, lock: &LockCommands) -> Result<bool, RedisError> {
        match self {
            TeachingLock::Setnx => setnx::release(lock).await,
            TeachingLock::SetnxExpire => setnx_expire::release(lock).await,
            TeachingLock::Ttl => ttl::release(lock).await,
            TeachingLock::CheckThenDel => check_then_del::release(lock).await,
            TeachingLock::ExpireOnly => expire_only::release(lock).await,
        }
    }
}

#[derive(Debug)]
pub(super) struct TeachingLease {
    kind: TeachingLock,
    lock: LockCommands,
    release_on_drop: bool,
}

impl TeachingLease {
    /// Acquires the lock. With [`Wait::Try`] it makes one attempt, otherwise it polls until
    /// `until`. Returns `None` if the lock was held at the last attempt. Waiters are served in no
    /// particular order.
    ///
    /// # Cancel safety
    /// Safe: what an attempt acquired is released as on drop, also after an error.
    pub(super) async fn acquire(
        kind: TeachingLock,
        lock: LockCommands,
        locks: &Locks,
        wait: Wait,
        until: Instant,
    ) -> Result<Option<Self>, Error> {
        // The lease exists before a command is sent: dropping it releases what may have been
        // acquired.
        let mut lease = Self { kind, lock, release_on_drop: true };
        loop {
            // Its value contains the time of acquisition.
            lease.lock.owner = locks.process().new_owner();
            if kind.acquire(&lease.lock).await? {
                return Ok(Some(lease));
            }
            let next = Instant::now() + jittered(locks.settings().retry_interval);
            if wait == Wait::Try || next > until {
                lease.release_on_drop = false;
                return Ok(None);
            }
            sleep_until(next).await;
        }
    }
}

impl ForeignLease for TeachingLease {
    /// Releases the lease by its commands and returns what they report: most delete without
    /// comparing the owner. Without a response it is released as on drop.
    fn release(mut self: Box<Self>) -> BoxFuture<'static, Released> {
        async move {
            let outcome = self.kind.release(&self.lock).await;
            self.release_on_drop = outcome.is_err();
            match outcome {
                Ok(true) => Released::Held,
                Ok(false) => Released::Lost,
                Err(_) => Released::Unknown,
            }
        }
        .boxed()
    }

    fn leave_to_expire(mut self: Box<Self>) {
        self.release_on_drop = false;
    }
}

impl Drop for TeachingLease {
    fn drop(&mut self) {
        if !self.release_on_drop || self.kind == TeachingLock::ExpireOnly {
            return;
        }
        let (redis, key, owner) = (
            self.lock.redis.for_release(),
            std::mem::take(&mut self.lock.key),
            std::mem::take(&mut self.lock.owner),
        );
        self.lock.redis.runtime().spawn(async move { redis.delete_if(&key, &owner).await });
    }
}
