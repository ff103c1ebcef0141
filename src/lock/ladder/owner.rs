//! `owner`: the textbook lease in Redis.
//!
//! # Guarantee
//! `SET key value NX PX ttl` lets one owner in; the value is new with every acquisition, and the
//! release compares it with the key's and deletes in one script, so nobody deletes somebody else's
//! lock. A holder that dies blocks the others for one TTL at most. While all work is shorter than
//! the TTL, and Redis forgets nothing, there is one holder at a time.
//!
//! # Breaks when
//! The work outlives the TTL: the next one is let in while the first still believes it is alone.
//! It has no fence, so nothing stops the first one's write.
//!
//! # Seen in the wild
//! Every tutorial, and most home-grown locks; `retry` is their waiting by asking again, which keeps
//! the lock idle half of the time and the unlucky waiting for seconds.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::{Instant, sleep_until};

use crate::lock::process::Process;
use crate::lock::{Error, Redis, Released, Wait};

/// One lock that is being asked for.
#[derive(Debug)]
pub struct Lock<'a> {
    /// Where.
    pub redis: &'a Redis,
    /// By whom.
    pub process: &'a Process,
    /// Under which name.
    pub redis_key: String,
    /// For how long.
    pub ttl: Duration,
    /// Pause between two attempts.
    pub retry: Duration,
}

impl Lock<'_> {
    /// Takes the lock, trying until `until` when told to; `None` when it is still taken then.
    ///
    /// In no order: whoever asks at the right moment has it. The lease is not renewed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis did not answer. The owner that may have got in is being
    /// let out again.
    ///
    /// # Cancel safety
    /// Safe: the release of an attempt in flight is handed over.
    pub async fn acquire(self, wait: Wait, until: Instant) -> Result<Option<Lease>, Error> {
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
        let owner = self.process.new_owner();
        // The lease exists before the command is sent: if the answer is lost, or nobody waits for
        // it any more, dropping the lease gives back what may have been taken.
        let lease =
            Lease { redis: self.redis.clone(), key: self.redis_key.clone(), owner, armed: true };
        let command = ::redis::cmd("SET")
            .arg(&lease.key)
            .arg(&lease.owner)
            .arg("NX")
            .arg("PX")
            .arg(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX))
            .to_owned();
        let taken: Option<String> = self.redis.query(command).await?;
        if taken.is_some() {
            Ok(Some(lease))
        } else {
            lease.disarm();
            Ok(None)
        }
    }
}

/// An owner that is, or may be, in Redis.
#[derive(Debug)]
pub struct Lease {
    redis: Redis,
    key: String,
    owner: String,
    armed: bool,
}

impl Lease {
    /// Where it is.
    #[must_use]
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Under which key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Compares and deletes: somebody else's lease is never touched.
    ///
    /// # Cancel safety
    /// Safe: a release that was not answered is handed over, as by dropping.
    pub async fn release(mut self) -> Released {
        let outcome = self.redis.delete_if(&self.key, &self.owner).await;
        // An answer, whichever, means there is nothing left to give back.
        self.armed = outcome.is_err();
        match outcome {
            Ok(true) => Released::Held,
            Ok(false) => Released::Lost,
            Err(_) => Released::Unknown,
        }
    }

    /// Forgets the lease without giving it back: it ends by its expiry.
    pub fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (redis, key, owner) =
            (self.redis.clone(), std::mem::take(&mut self.key), std::mem::take(&mut self.owner));
        self.redis.runtime().spawn(async move { redis.delete_if(&key, &owner).await });
    }
}

/// Half of the pause, and up to as much again: waiters that began together come apart.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.5..1.5))
}
