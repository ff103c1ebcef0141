//! Polling and release, common to the leases that are almost right.
//!
//! A rung is two functions in a file of its own, `take` and `give_back`; its file states when it
//! breaks. Only an explicit release runs `give_back`. A cancelled attempt or a dropped lease is
//! released by compare-and-delete instead, which never touches another owner's lock; under
//! [`Rung::ExpireOnly`] nothing is deleted.
//!
//! Tests: `tests/lock/rungs.rs`.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError};
use tokio::time::{Instant, sleep_until};

use super::owner::jittered;
use super::{check_then_del, expire_only, setnx, setnx_expire, ttl};
use crate::lock::process::Process;
use crate::lock::{Error, LockKey, Redis, Released, Wait};
use crate::probe::{Point, Probe, Seen};

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
pub struct Asking<'a> {
    /// Rung whose commands are sent.
    pub rung: Rung,
    /// Server that stores the lock.
    pub redis: &'a Redis,
    /// Process that acquires the lock; its name is part of the owner value.
    pub process: &'a Process,
    /// Key in Redis.
    pub redis_key: &'a str,
    /// Name in a trace.
    pub name: &'a LockKey,
    /// Lifetime of the lease; ignored by [`Rung::Setnx`].
    pub ttl: Duration,
    /// Pause between two attempts; each is jittered by half of it.
    pub retry: Duration,
    /// Probe whose points the rung passes between its commands.
    pub probe: &'a Probe,
}

impl Asking<'_> {
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
    pub async fn acquire(&self, wait: Wait, until: Instant) -> Result<Option<Lease>, Error> {
        loop {
            if let Some(lease) = self.attempt().await? {
                return Ok(Some(lease));
            }
            let next = Instant::now() + jittered(self.retry);
            if wait == Wait::Try || next > until {
                return Ok(None);
            }
            sleep_until(next).await;
        }
    }

    async fn attempt(&self) -> Result<Option<Lease>, Error> {
        let lock = Lock {
            redis: self.redis.clone(),
            key: self.redis_key.to_owned(),
            owner: self.process.new_owner(),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            name: self.name.clone(),
            probe: self.probe.clone(),
        };
        // The lease exists before a command is sent: dropping it releases what may have been
        // acquired.
        let mut lease = Lease { rung: self.rung, lock, armed: true };
        if self.rung.take(&lease.lock).await? {
            return Ok(Some(lease));
        }
        lease.armed = false;
        Ok(None)
    }
}

impl Rung {
    async fn take(self, lock: &Lock) -> Result<bool, RedisError> {
        match self {
            Rung::Setnx => setnx::take(lock).await,
            Rung::SetnxExpire => setnx_expire::take(lock).await,
            Rung::Ttl => ttl::take(lock).await,
            Rung::CheckThenDel => check_then_del::take(lock).await,
            Rung::ExpireOnly => expire_only::take(lock).await,
        }
    }

    async fn give_back(self, lock: &Lock) -> Result<bool, RedisError> {
        match self {
            Rung::Setnx => setnx::give_back(lock).await,
            Rung::SetnxExpire => setnx_expire::give_back(lock).await,
            Rung::Ttl => ttl::give_back(lock).await,
            Rung::CheckThenDel => check_then_del::give_back(lock).await,
            Rung::ExpireOnly => expire_only::give_back(lock).await,
        }
    }
}

/// The parameters of a rung's commands.
#[derive(Debug)]
pub struct Lock {
    /// Key in Redis.
    pub key: String,
    /// Value of the key, unique per attempt.
    pub owner: String,
    /// Lifetime of the key, for rungs with an expiry.
    pub ttl_ms: u64,
    redis: Redis,
    name: LockKey,
    probe: Probe,
}

impl Lock {
    /// Sends one command, in one round trip.
    pub(super) async fn send<T>(&self, command: &Cmd) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        self.redis.query(command.clone()).await
    }

    /// Passes a probe point between two commands, where the lab can pause the request.
    pub(super) async fn pass(&self, point: Point) {
        self.probe.at(point, [Seen::key(self.name.as_str())]).await;
    }
}

/// A lease that is, or may be, in Redis.
#[derive(Debug)]
pub struct Lease {
    rung: Rung,
    lock: Lock,
    armed: bool,
}

impl Lease {
    /// Releases the lease by the commands of its rung and returns what they report: most rungs
    /// delete without comparing the owner.
    ///
    /// # Cancel safety
    /// Safe: a background task releases a lease without a response, as on drop.
    pub async fn release(mut self) -> Released {
        let outcome = self.rung.give_back(&self.lock).await;
        self.armed = outcome.is_err();
        match outcome {
            Ok(true) => Released::Held,
            Ok(false) => Released::Lost,
            Err(_) => Released::Unknown,
        }
    }

    /// Leaves the key to its expiry, if it has one.
    pub fn leave_to_expire(mut self) {
        self.armed = false;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.armed || self.rung == Rung::ExpireOnly {
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
