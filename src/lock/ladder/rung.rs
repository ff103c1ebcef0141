//! What the leases that are nearly right have in common: asking again while it is taken, and a
//! lease that is given back in the way of its rung.
//!
//! Each rung is two functions in a file of its own, `take` and `give_back`: those are the whole
//! difference. They break as their files say; beyond that they have manners. An attempt that nobody
//! waits for any more, and a lease that is dropped, is taken out of Redis by its owner's name,
//! which harms nobody: only who *releases* does it the rung's way.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError};
use tokio::time::{Instant, sleep_until};

use super::owner::jittered;
use super::{check_then_del, expire_only, setnx, setnx_expire, ttl};
use crate::lock::process::Process;
use crate::lock::{Error, LockKey, Redis, Released, Wait};
use crate::probe::{Point, Probe, Seen};

/// Which of them.
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

/// One lock that is being asked for.
#[derive(Debug)]
pub struct Asking<'a> {
    /// In which way.
    pub rung: Rung,
    /// Where.
    pub redis: &'a Redis,
    /// By whom.
    pub process: &'a Process,
    /// Under which name in Redis.
    pub redis_key: &'a str,
    /// Under which name in a trace.
    pub name: &'a LockKey,
    /// For how long; [`Rung::Setnx`] does not care.
    pub ttl: Duration,
    /// Pause between two attempts.
    pub retry: Duration,
    /// Who watches.
    pub probe: &'a Probe,
}

impl Asking<'_> {
    /// Takes the lock, trying until `until` when told to; `None` when it is still taken then.
    ///
    /// In no order: whoever asks at the right moment has it. The lease is not renewed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis did not answer. The owner that may have got in is being
    /// let out again.
    ///
    /// # Cancel safety
    /// Safe: the release of an attempt in flight is handed over. (Under [`Rung::ExpireOnly`] what
    /// was taken ends with its expiry.)
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
        // It is there before anything is sent, and given back when nobody waits for the answer.
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

/// What a rung's commands speak of.
#[derive(Debug)]
pub struct Lock {
    /// The key in Redis.
    pub key: String,
    /// Its value while we have it: new with every attempt.
    pub owner: String,
    /// How long the key lives, where the rung says so.
    pub ttl_ms: u64,
    redis: Redis,
    name: LockKey,
    probe: Probe,
}

impl Lock {
    /// One command, one round trip.
    pub(super) async fn send<T>(&self, command: &Cmd) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        self.redis.query(command.clone()).await
    }

    /// A moment between two commands, which the lab can make longer.
    pub(super) async fn pass(&self, point: Point) {
        self.probe.at(point, [Seen::key(self.name.as_str())]).await;
    }
}

/// A key that is, or may be, in Redis.
#[derive(Debug)]
pub struct Lease {
    rung: Rung,
    lock: Lock,
    armed: bool,
}

impl Lease {
    /// Releases in the way of its rung, and says what it saw: most delete without a look.
    ///
    /// # Cancel safety
    /// Safe: a release that was not answered is handed over, as by dropping.
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
