//! `owner`: the textbook lease in Redis.
//!
//! # Guarantee
//! `SET key value NX PX ttl` admits one owner. The value is unique per acquisition, and the release
//! compares and deletes it in one script, so it never deletes another owner's lock. A holder that
//! dies blocks the others for one TTL at most. While all work is shorter than the TTL, and Redis
//! loses no data, there is one holder at a time.
//!
//! # Breaks when
//! The work outlives the TTL: the next holder is admitted while the first still works. There is no
//! fence, so nothing rejects the first holder's write.
//!
//! # Seen in the wild
//! Every tutorial, and most home-grown locks. Waiters usually poll (`retry`), which leaves the lock
//! idle half of the time and lets an unlucky waiter wait for seconds.

use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use crate::clock::renewals_end_us;
use crate::kind::PollingRequest;
use crate::process::Process;
use crate::redis::set_if_absent;
use crate::{Error, Redis, Released, watchdog};

/// A lease that is, or may be, in Redis.
#[derive(Debug)]
pub(crate) struct OwnerLease {
    redis: Redis,
    key: String,
    /// Unique per acquisition.
    owner: String,
    renewal: Option<AbortOnDropHandle<()>>,
    release_on_drop: bool,
}

impl OwnerLease {
    /// Acquires the lock, or returns `None` if it was held at the last attempt. Waiters are served
    /// in no particular order. What an attempt in flight acquired is released in the background if
    /// this future is dropped, and after an error.
    pub async fn acquire(
        redis: &Redis,
        process: &Process,
        request: PollingRequest<'_>,
    ) -> Result<Option<Self>, Error> {
        loop {
            // The lease exists before the command is sent: if the response is lost or the caller is
            // cancelled, dropping the lease releases what the command may have acquired.
            let lease = Self {
                redis: redis.clone(),
                key: request.redis_key.to_owned(),
                owner: process.new_owner(),
                renewal: None,
                release_on_drop: true,
            };
            let command = set_if_absent(&lease.key, &lease.owner, request.ttl);
            let created: Option<String> = redis.query(command).await?;
            if created.is_some() {
                return Ok(Some(lease));
            }

            lease.leave_to_expire();
            if !request.next_attempt().await {
                return Ok(None);
            }
        }
    }

    /// Renews the lease until it is released, dropped or lost, for `max_hold` at most. The loss is
    /// not reported before the release.
    pub fn renewed(mut self, ttl: Duration, max_hold: Option<Duration>) -> Self {
        let end_us = renewals_end_us(max_hold);
        let key = self.key.clone();
        let renewal = watchdog::renew(self.redis.clone(), key, self.owner.clone(), ttl, end_us);
        self.renewal = Some(AbortOnDropHandle::new(self.redis.spawn(renewal)));
        self
    }

    /// Stops the renewal, then releases the lease. Without a response it is released as on drop.
    pub async fn release(mut self) -> Released {
        // A renewal behind the deletion would find the next owner's lock: harmless, but in vain.
        self.renewal = None;
        let deleted = self.redis.delete_if(&self.key, &self.owner).await;
        // Any response means that nothing is left to release.
        self.release_on_drop = deleted.is_err();
        match deleted {
            Ok(true) => Released::Held,
            Ok(false) => Released::Lost,
            Err(_) => Released::Unknown,
        }
    }

    pub fn leave_to_expire(mut self) {
        self.release_on_drop = false;
    }
}

impl Drop for OwnerLease {
    fn drop(&mut self) {
        if !self.release_on_drop {
            return;
        }
        let redis = self.redis.for_release();
        let key = std::mem::take(&mut self.key);
        let owner = std::mem::take(&mut self.owner);
        self.redis.spawn(async move { redis.delete_if(&key, &owner).await });
    }
}
