//! `watchdog`: the textbook lease, renewed while the work runs.
//!
//! # Guarantee
//! Everything that `owner` guarantees, and long work keeps its lock: a task renews the lease every
//! third of its TTL, for [`crate::Settings::max_hold`] at most. A process that dies renews nothing,
//! so others wait for one TTL at most.
//!
//! # Breaks when
//! The process is paused (its renewals with it) or Redis loses its data: the next holder is
//! admitted. There is no fence, so nothing rejects the first holder's write when it resumes.
//!
//! # Seen in the wild
//! Redisson's `RLock` without a lease time; `SET NX PX` with a background thread.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{lease_deadline_us, monotonic_us};
use crate::lease::LeaseRecord;
use crate::owned_key::OwnedKey;
use crate::time::sleep;

/// Renews the lease until `end_us`, or until its key has another owner or none. Retries sooner
/// after an error.
pub(crate) async fn renew(key: OwnedKey, record: Arc<LeaseRecord>, ttl: Duration, end_us: u64) {
    let mut pause = ttl / 3;
    loop {
        sleep(pause).await;
        let sent_us = monotonic_us();
        if sent_us >= end_us {
            tracing::warn!(key = key.key, "a lock expires: it was held for too long");
            return;
        }

        pause = match key.redis.renew_if(&key.key, &key.owner, ttl).await {
            Ok(true) => {
                record.record_renewal(lease_deadline_us(sent_us, ttl));
                ttl / 3
            }
            Ok(false) => return record.record_loss(),
            Err(_) => ttl / 10,
        };
    }
}
