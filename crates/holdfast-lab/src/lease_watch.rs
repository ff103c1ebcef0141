//! When the lease of a lesson's request was renewed and when it ended, as Redis reports it: its
//! time to live, read again and again until the key is gone. So no lane claims an end that only the
//! length of the lease suggests.

use std::time::Duration;

use anyhow::ensure;
use holdfast_lock::clock::monotonic_us;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::request::InFlightRequest;
use super::scenario::{POLL_INTERVAL, Scenario, WAIT_TIMEOUT};
use holdfast_shop::Sku;
use holdfast_story::{EventKind, TimelineEvent, Value};

/// A lease whose end moves by more was renewed; less is the time that an answer takes.
const RENEWED_BY_US: u64 = 20_000;
/// A lock that is gone longer than this before its time was released.
const EARLY_US: u64 = 5_000;

impl Scenario {
    /// Waits until the lease of a request has ended, at most for `length`, and adds to its lane
    /// when it was renewed and when it expired.
    pub async fn watch_lease(
        &self,
        request: &mut InFlightRequest,
        sku: &Sku,
        length: Option<Duration>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + length.unwrap_or(WAIT_TIMEOUT);
        let LeaseSnapshot { owner, mut due_us, .. } = self.lease(sku).await?;

        while Instant::now() < end {
            let lease = self.lease(sku).await?;
            if lease.owner.is_none() || lease.owner != owner {
                // Gone before its time, it was released.
                if due_us <= lease.at_us + EARLY_US {
                    let at_us = due_us.min(lease.at_us);
                    request.lane.events.push(expired(at_us, request.lease_ms));
                }
                return Ok(());
            }

            if lease.due_us > due_us + RENEWED_BY_US {
                request.lane.happens(EventKind::Renewed);
                due_us = lease.due_us;
            }
            // The answer that took the least time is the most exact.
            due_us = due_us.min(lease.due_us);
            sleep(POLL_INTERVAL).await;
        }

        ensure!(length.is_some(), "timed out waiting until the lease expires");
        Ok(())
    }

    /// Adds to a recorded lane when its lease will expire, which is neither renewed nor released.
    pub async fn note_expiry(
        &self,
        request_id: Uuid,
        sku: &Sku,
        lease_ms: u64,
    ) -> anyhow::Result<()> {
        let lease = self.lease(sku).await?;
        if lease.owner.is_none() {
            // It is over already, since an unknown time.
            return Ok(());
        }
        // Not a moment too late: the next one must not hold the lock before this one's end.
        let at_us = lease.due_after_us.saturating_sub(self.began_us);

        let mut outcome = self.outcome.lock();
        let mut lanes = outcome.lanes.iter_mut();
        if let Some(lane) = lanes.find(|lane| lane.request_id == request_id) {
            lane.events.push(expired(at_us, Some(lease_ms)));
        }
        Ok(())
    }

    async fn lease(&self, sku: &Sku) -> anyhow::Result<LeaseSnapshot> {
        let key = self.lock_key(sku);
        let mut both = redis::pipe();
        both.atomic().get(&key).pttl(&key);
        let asked_us = monotonic_us();
        let (owner, ttl_ms): (Option<String>, i64) =
            both.query_async(&mut self.redis().await?).await?;

        Ok(LeaseSnapshot::new(owner, ttl_ms, asked_us, monotonic_us()))
    }
}

/// An item's lock at a moment.
struct LeaseSnapshot {
    owner: Option<String>,
    at_us: u64,
    /// When it will end at the latest, unless it is renewed.
    due_us: u64,
    /// It will not end before this.
    due_after_us: u64,
}

impl LeaseSnapshot {
    /// As Redis answered at `at_us` to a question that was sent at `asked_us`.
    fn new(owner: Option<String>, ttl_ms: i64, asked_us: u64, at_us: u64) -> Self {
        // Negative without an expiry.
        let ttl_us = u64::try_from(ttl_ms).unwrap_or(0) * 1_000;
        // Redis counts whole milliseconds.
        let due_after_us = (asked_us + ttl_us).saturating_sub(1_000);
        Self { owner, at_us, due_us: at_us + ttl_us, due_after_us }
    }
}

fn expired(at_us: u64, lease_ms: Option<u64>) -> TimelineEvent<()> {
    let mut expired = TimelineEvent::new((), at_us, EventKind::Expired);
    expired.detail.value = lease_ms.map(Value::Ms);
    expired
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis may have read its clock at any time between the question and the answer.
    #[test]
    fn slow_answer_leaves_the_end_of_a_lease_uncertain() {
        let lease = LeaseSnapshot::new(None, 300, 10_000, 50_000);
        assert_eq!((lease.due_after_us, lease.due_us), (309_000, 350_000));
    }
}
