//! When the lease of a lesson's request was renewed and when it ended, as Redis tells it: its time
//! to live, asked again and again until the key is gone. So no lane claims an end that only the
//! length of the lease suggests.

use std::time::Duration;

use anyhow::ensure;
use holdfast_lock::clock::monotonic_us;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::request::InFlightRequest;
use super::run::LaneEvent;
use super::scenario::{POLL_INTERVAL, Scenario, WAIT_TIMEOUT};
use holdfast_shop::Sku;

/// `PTTL` of a key that does not exist.
const ABSENT: i64 = -2;
/// A lease whose end moves by more was renewed; less is the time that an answer takes.
const RENEWED_BY_US: u64 = 20_000;

impl Scenario {
    /// Waits until the lease of a request has expired, at most for `length`, and adds to its lane
    /// when it was renewed and when it ended.
    pub async fn watch_lease(
        &self,
        request: &mut InFlightRequest,
        sku: &Sku,
        length: Option<Duration>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + length.unwrap_or(WAIT_TIMEOUT);
        let mut due_us = None;

        loop {
            let (now_us, ttl_us) = self.time_to_live(sku).await?;
            let Some(ttl_us) = ttl_us else {
                // When Redis last said that it would end.
                let at_us = due_us.unwrap_or(now_us).min(now_us);
                request.lane.events.push(expired(at_us, request.lease_ms));
                return Ok(());
            };

            let next_us = now_us + ttl_us;
            if due_us.is_some_and(|due_us| next_us > due_us + RENEWED_BY_US) {
                request.lane.happens("renewed");
            }
            due_us = Some(next_us);

            if Instant::now() >= end {
                ensure!(length.is_some(), "timed out waiting until the lease expires");
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Adds to a recorded lane when its lease will expire, which nobody renews and no holder ends.
    pub async fn note_expiry(
        &self,
        request_id: Uuid,
        sku: &Sku,
        lease_ms: u64,
    ) -> anyhow::Result<()> {
        let (now_us, ttl_us) = self.time_to_live(sku).await?;
        // If it is over already, nobody knows since when.
        let Some(ttl_us) = ttl_us else { return Ok(()) };
        let at_us = (now_us + ttl_us).saturating_sub(self.began_us);

        let mut outcome = self.outcome.lock();
        let mut lanes = outcome.lanes.iter_mut();
        if let Some(lane) = lanes.find(|lane| lane.request_id == request_id) {
            lane.events.push(expired(at_us, Some(lease_ms)));
        }
        Ok(())
    }

    /// Returns the time, and how long the item's lock lives from then on; `None` if it is free.
    async fn time_to_live(&self, sku: &Sku) -> anyhow::Result<(u64, Option<u64>)> {
        let ttl_ms: i64 = self.query_lock("PTTL", sku).await?;
        let ttl_us = u64::try_from(ttl_ms).unwrap_or(0) * 1_000;
        Ok((monotonic_us(), (ttl_ms != ABSENT).then_some(ttl_us)))
    }
}

fn expired(at_us: u64, lease_ms: Option<u64>) -> LaneEvent {
    let value = lease_ms.and_then(|ms| i64::try_from(ms).ok());
    LaneEvent { value, ..LaneEvent::new(at_us, "expired") }
}
