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

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use crate::clock::{lease_deadline_us, monotonic_us, renewals_end_us};
use crate::kind::PollingRequest;
use crate::lease::{Closable, LeaseRecord, Leases};
use crate::owned_key::OwnedKey;
use crate::process::ProcessIdentity;
use crate::redis::set_if_absent;
use crate::{Error, LockKind, Redis, Released, watchdog};

/// A lease that is, or may be, in Redis.
#[derive(Debug)]
pub(crate) struct OwnerLease {
    key: OwnedKey,
    leases: Leases,
    /// Absent until it is known to be acquired.
    record: Option<Arc<LeaseRecord>>,
    renewal: Option<AbortOnDropHandle<()>>,
    release_on_drop: bool,
}

/// An acquired lease, as `Locks::close` releases it.
#[derive(Debug)]
struct ClosableLease {
    key: OwnedKey,
    record: Arc<LeaseRecord>,
}

impl Closable for ClosableLease {
    fn close(&self) -> Pin<Box<dyn Future<Output = Released> + Send + '_>> {
        Box::pin(async {
            let released = self.key.delete().await;
            self.record.record_release(released);
            released
        })
    }
}

impl OwnerLease {
    /// Acquires the lock, or returns `None` if it was held at the last attempt. Waiters are served
    /// in no particular order. What an attempt in flight acquired is released in the background if
    /// this future is dropped, and after an error.
    ///
    /// That of [`LockKind::Watchdog`] is renewed until it is released, dropped or lost, for
    /// `max_hold` at most.
    pub async fn acquire(
        redis: &Redis,
        process: &ProcessIdentity,
        request: PollingRequest<'_>,
    ) -> Result<Option<Self>, Error> {
        loop {
            // The lease exists before the command is sent: if the response is lost or the caller is
            // cancelled, dropping the lease releases what the command may have acquired.
            let key = OwnedKey {
                redis: redis.clone(),
                key: request.redis_key.to_owned(),
                owner: process.new_owner(),
            };
            let leases = request.leases.clone();
            let mut lease =
                Self { key, leases, record: None, renewal: None, release_on_drop: true };

            let sent_us = monotonic_us();
            let command = set_if_absent(&lease.key.key, &lease.key.owner, request.ttl);
            let created: Option<String> = redis.send(command).await?;
            if created.is_some() {
                lease.begin(request, sent_us)?;
                return Ok(Some(lease));
            }

            lease.leave_to_expire();
            if !request.next_attempt().await {
                return Ok(None);
            }
        }
    }

    /// Records the acquisition, and starts the renewals.
    fn begin(&mut self, request: PollingRequest<'_>, sent_us: u64) -> Result<(), Error> {
        let PollingRequest { kind, asked_us, ttl, max_hold, .. } = request;
        let deadline_us = lease_deadline_us(sent_us, ttl);
        let record = Arc::new(LeaseRecord::new(&self.leases, kind, asked_us, deadline_us));
        self.record = Some(Arc::clone(&record));

        let acquired = ClosableLease { key: self.key.clone(), record: Arc::clone(&record) };
        self.leases.add(&self.key.owner, Arc::new(acquired))?;

        if kind == LockKind::Watchdog {
            let end_us = renewals_end_us(max_hold);
            let renewal = watchdog::renew(self.key.clone(), record, ttl, end_us);
            self.renewal = Some(AbortOnDropHandle::new(self.key.redis.spawn(renewal)));
        }
        Ok(())
    }

    pub fn record(&self) -> Option<&LeaseRecord> {
        self.record.as_deref()
    }

    /// Stops the renewal, then releases the lease. Without a response it is released as on drop.
    pub async fn release(mut self) -> Released {
        // A renewal behind the deletion would find the next owner's lock: harmless, but in vain.
        self.renewal = None;
        let released = self.key.delete().await;
        // Any response means that nothing is left to release.
        self.release_on_drop = released == Released::Unknown;
        if let Some(record) = &self.record {
            record.record_release(released);
        }
        released
    }

    pub fn leave_to_expire(mut self) {
        self.release_on_drop = false;
        if let Some(record) = &self.record {
            record.record_leaving();
        }
    }
}

impl Drop for OwnerLease {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            self.leases.remove(&self.key.owner);
            record.record_release(Released::Unknown);
        }
        if !self.release_on_drop {
            return;
        }
        let key = OwnedKey { redis: self.key.redis.for_release(), ..self.key.clone() };
        self.leases.spawn_release(&self.key.redis, async move { key.delete().await });
    }
}
