//! `watchdog`: the textbook lease, renewed while the work runs.
//!
//! # Guarantee
//! Everything that `owner` guarantees, and long work keeps its lock: a task renews the lease every
//! third of its TTL. A process that dies renews nothing, so others wait for one TTL at most. It is
//! not reentrant: a nested call takes the guard ([`crate::Guard::nested`]), or waits for
//! itself.
//!
//! # Breaks when
//! The process is paused (its renewals with it) or Redis loses its data: the next holder is
//! admitted. There is no fence, so nothing rejects the first holder's write when it resumes.
//!
//! # Seen in the wild
//! Redisson's `RLock` without a lease time; `SET NX PX` with a background thread.

use std::time::Duration;

use crate::owner::OwnerLease;
use crate::task::AbortOnDrop;
use crate::{Redis, Released};

/// A lease with its renewal task.
#[derive(Debug)]
pub(crate) struct RenewedLease {
    renewal: AbortOnDrop,
    lease: OwnerLease,
}

impl RenewedLease {
    /// Starts a task that renews the lease until it is released, dropped or lost. The loss is not
    /// reported before the release.
    #[must_use]
    pub fn new(lease: OwnerLease, ttl: Duration) -> Self {
        let (redis, key, owner) = (lease.redis(), lease.key(), lease.owner());
        let renewal = renew(redis.clone(), key.to_owned(), owner.to_owned(), ttl);
        Self { renewal: AbortOnDrop::spawn(redis.runtime(), renewal), lease }
    }

    /// Stops the renewal, then releases the lease by compare-and-delete.
    ///
    /// # Cancel safety
    /// Safe, as for [`OwnerLease::release`].
    pub async fn release(self) -> Released {
        drop(self.renewal);
        self.lease.release().await
    }

    /// Stops the renewal and leaves the lease to its expiry.
    pub fn leave_to_expire(self) {
        drop(self.renewal);
        self.lease.leave_to_expire();
    }
}

/// Renews the lease until its key has another owner or none. Retries sooner after an error.
async fn renew(redis: Redis, key: String, owner: String, ttl: Duration) {
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
