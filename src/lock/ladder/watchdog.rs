//! `watchdog`: the textbook lease, renewed while the work runs.
//!
//! # Guarantee
//! Everything that `owner` guarantees, and long work keeps its lock: a task renews the lease after
//! every third of it. A process that dies renews nothing, so others wait one lease at most. It is
//! not reentrant: a nested call takes the guard ([`crate::lock::Guard::nested`]), or waits for
//! itself.
//!
//! # Breaks when
//! The process is paused (its renewals with it) or Redis forgets: the next one is let in, and
//! nothing stops the first one's write when it comes back. It has no fence.
//!
//! # Seen in the wild
//! Redisson's `RLock` without a lease time; `SET NX PX` with a background thread.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::owner::Lease;
use crate::lock::Released;

/// A lease that is being renewed.
#[derive(Debug)]
pub struct Renewed {
    renewal: Renewal,
    lease: Lease,
}

/// Ends with the value, before the lease is given back: nothing is renewed after it.
#[derive(Debug)]
struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Renewed {
    /// Renews the lease from now on, until it is given back, dropped or lost. Nobody is told when
    /// it is lost: only the release finds out.
    #[must_use]
    pub fn new(lease: Lease, ttl: Duration) -> Self {
        let renewal = lease.redis().runtime().spawn(renew(
            lease.redis().clone(),
            lease.key().to_owned(),
            lease.owner().to_owned(),
            ttl,
        ));
        Self { renewal: Renewal(renewal), lease }
    }

    /// Stops renewing, then compares and deletes.
    ///
    /// # Cancel safety
    /// Safe, as [`Lease::release`]: what is dropped is handed over.
    pub async fn release(self) -> Released {
        drop(self.renewal);
        self.lease.release().await
    }

    /// Stops renewing and leaves the lease to its expiry.
    pub fn leave_to_expire(self) {
        drop(self.renewal);
        self.lease.disarm();
    }
}

/// Ends when the lock is somebody else's. A Redis that does not answer is asked again, sooner.
async fn renew(redis: crate::lock::Redis, key: String, owner: String, ttl: Duration) {
    let mut pause = ttl / 3;
    loop {
        tokio::time::sleep(pause).await;
        pause = match redis.renew_if(&key, &owner, ttl).await {
            Ok(true) => ttl / 3,
            Ok(false) => return,
            Err(_) => ttl / 10,
        };
    }
}
