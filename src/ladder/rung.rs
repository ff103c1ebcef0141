//! Polling and release, common to the leases that are almost right.
//!
//! A rung is two functions in a file of its own, `acquire` and `release`; its file states when it
//! breaks. Only an explicit release runs `release`. A cancelled attempt or a dropped lease is
//! released by compare-and-delete instead, which never touches another owner's lock; under
//! [`Rung::ExpireOnly`] nothing is deleted.
//!
//! Tests: `tests/locks/teaching_locks.rs`.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use holdfast_lock::clock::jittered;
use holdfast_lock::redis::Error as RedisError;
use holdfast_lock::{Error, ForeignLease, LockKey, Locks, Released, Wait};
use tokio::time::{Instant, sleep_until};

use super::commands::RungCommands;
use super::{check_then_del, expire_only, setnx, setnx_expire, ttl};
use crate::probe::Probe;

/// A lease that is almost right, by its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// `SETNX`, `DEL`.
    Setnx,
    /// `SETNX`, `EXPIRE`, `DEL`.
    SetnxExpire,
    /// `SET NX PX`, `DEL`.
    Ttl,
    /// `SET NX PX`, `GET`, `DEL`.
    CheckThenDel,
    /// `SET NX PX`.
    ExpireOnly,
}

/// A lock to acquire.
#[derive(Debug)]
pub(super) struct RungRequest<'a> {
    /// Rung whose commands are sent.
    pub(super) rung: Rung,
    /// Locks of this process: their Redis, their prefix and the pause between two attempts.
    pub(super) locks: &'a Locks,
    pub(super) key: &'a LockKey,
    /// Lifetime of the lease; ignored by [`Rung::Setnx`].
    pub(super) ttl: Duration,
    /// Probe whose points the rung passes between its commands.
    pub(super) probe: &'a Probe,
}

impl RungRequest<'_> {
    /// Acquires the lock. With [`Wait::Try`] it makes one attempt, otherwise it polls until
    /// `until`. Returns `None` if the lock was held at the last attempt.
    ///
    /// Waiters are served in no particular order. The lease is not renewed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Redis does not respond. The lock may have been acquired; a
    /// background task releases it.
    ///
    /// # Cancel safety
    /// Safe: a background task releases what an attempt in flight acquired. (Under
    /// [`Rung::ExpireOnly`] it ends with its expiry.)
    pub(super) async fn acquire(
        &self,
        wait: Wait,
        until: Instant,
    ) -> Result<Option<RungLease>, Error> {
        loop {
            if let Some(lease) = self.attempt().await? {
                return Ok(Some(lease));
            }
            let next = Instant::now() + jittered(self.locks.settings().retry);
            if wait == Wait::Try || next > until {
                return Ok(None);
            }
            sleep_until(next).await;
        }
    }

    async fn attempt(&self) -> Result<Option<RungLease>, Error> {
        let lock = RungCommands {
            redis: self.locks.redis().clone(),
            key: self.locks.redis_key(self.key),
            owner: self.locks.process().new_owner(),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            name: self.key.clone(),
            probe: self.probe.clone(),
        };
        // The lease exists before a command is sent: dropping it releases what may have been
        // acquired.
        let mut lease = RungLease { rung: self.rung, lock, release_on_drop: true };
        if self.rung.acquire(&lease.lock).await? {
            return Ok(Some(lease));
        }
        lease.release_on_drop = false;
        Ok(None)
    }
}

impl Rung {
    async fn acquire(self, lock: &RungCommands) -> Result<bool, RedisError> {
        match self {
            Rung::Setnx => setnx::acquire(lock).await,
            Rung::SetnxExpire => setnx_expire::acquire(lock).await,
            Rung::Ttl => ttl::acquire(lock).await,
            Rung::CheckThenDel => check_then_del::acquire(lock).await,
            Rung::ExpireOnly => expire_only::acquire(lock).await,
        }
    }

    async fn release(self, lock: &RungCommands) -> Result<bool, RedisError> {
        match self {
            Rung::Setnx => setnx::release(lock).await,
            Rung::SetnxExpire => setnx_expire::release(lock).await,
            Rung::Ttl => ttl::release(lock).await,
            Rung::CheckThenDel => check_then_del::release(lock).await,
            Rung::ExpireOnly => expire_only::release(lock).await,
        }
    }
}

/// A lease that is, or may be, in Redis.
#[derive(Debug)]
pub(super) struct RungLease {
    rung: Rung,
    lock: RungCommands,
    release_on_drop: bool,
}

impl ForeignLease for RungLease {
    /// Releases the lease by the commands of its rung and returns what they report: most rungs
    /// delete without comparing the owner.
    ///
    /// # Cancel safety
    /// Safe: a background task releases a lease without a response, as on drop.
    fn release(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = Released> + Send>> {
        Box::pin(async move {
            let outcome = self.rung.release(&self.lock).await;
            self.release_on_drop = outcome.is_err();
            match outcome {
                Ok(true) => Released::Held,
                Ok(false) => Released::Lost,
                Err(_) => Released::Unknown,
            }
        })
    }

    /// Leaves the key to its expiry, if it has one.
    fn leave_to_expire(mut self: Box<Self>) {
        self.release_on_drop = false;
    }
}

impl Drop for RungLease {
    fn drop(&mut self) {
        if !self.release_on_drop || self.rung == Rung::ExpireOnly {
            return;
        }
        let (redis, key, owner) = (
            self.lock.redis.clone(),
            std::mem::take(&mut self.lock.key),
            std::mem::take(&mut self.lock.owner),
        );
        self.lock.redis.runtime().spawn(async move { redis.delete_if(&key, &owner).await });
    }
}
