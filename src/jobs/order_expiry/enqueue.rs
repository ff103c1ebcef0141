//! Adds placed orders to the delay queue, and removes settled ones, in batches.
//!
//! An order that is settled before it was added is not added. One that another replica placed is
//! removed after [`REMOVAL_DELAY`], when that replica has added it, and again if it had not. Best
//! effort: an order that is not added is found in Postgres, and one that is not removed leaves the
//! queue when it is due.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use holdfast_lock::redis::Error as RedisError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::queue::DelayQueue;
use crate::metrics::EXPIRY_ENQUEUE_FAILURES;
use crate::shop::expiry::OrderEvent;

/// Orders added or removed in one call: a millisecond or two of Redis's time.
const MAX_BATCH_SIZE: usize = 500;
/// Interval of the calls: orders are due in a quarter of an hour, so once a second is enough.
const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// After an order that is due within this time, [`URGENT_CALL_INTERVAL`] applies: the next orders
/// are probably urgent, too.
const URGENT_THRESHOLD: Duration = Duration::from_secs(5);
const URGENT_CALL_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which a settled order is removed: longer than the interval of another replica's calls
/// and the duration of one.
const REMOVAL_DELAY: Duration = Duration::from_secs(3);
/// Attempts to remove an order, each [`REMOVAL_DELAY`] after the last: a replica without a free
/// core, or a Redis that does not respond, may take longer than one.
const MAX_REMOVAL_ATTEMPTS: u8 = 3;
/// Upper bound of the orders that wait for their removal; the oldest is removed early.
const MAX_WAITING_REMOVALS: usize = 50_000;

/// Follows the orders of this process until all senders are gone.
pub(super) async fn enqueue(queue: DelayQueue, mut receiver: mpsc::Receiver<OrderEvent>) {
    let mut events = Vec::with_capacity(MAX_BATCH_SIZE);
    let mut removals = Removals::default();
    let mut is_failing = false;
    loop {
        let received = tokio::select! {
            received = receiver.recv_many(&mut events, MAX_BATCH_SIZE) => received,
            () = sleep_until(removals.next_at()), if !removals.waiting.is_empty() => usize::MAX,
        };
        if received == 0 {
            return;
        }
        let called_at = Instant::now();
        let is_full = events.len() >= MAX_BATCH_SIZE;
        let placed = removals.defer(events.drain(..));
        let is_urgent = placed.values().any(|due_at| *due_at < called_at + URGENT_THRESHOLD);
        // The queue counts due times from this call.
        let due_in = |due_at: Instant| due_at.saturating_duration_since(called_at);
        let entries: Vec<(Uuid, Duration)> =
            placed.into_iter().map(|(order, due_at)| (order, due_in(due_at))).collect();
        if !entries.is_empty() {
            record_added(entries.len(), queue.add(&entries).await, &mut is_failing);
        }
        let settled = removals.take(called_at);
        let is_behind = settled.len() >= MAX_BATCH_SIZE;
        if !settled.is_empty() {
            let ids: Vec<Uuid> = settled.iter().map(|it| it.order).collect();
            match queue.remove(&ids).await {
                Ok(removed) if removed == ids.len() => {}
                Ok(_) => removals.retry(settled),
                Err(error) => {
                    tracing::debug!(%error, "settled orders are not removed from the delay queue");
                    removals.retry(settled);
                }
            }
        }
        // After a full batch more orders are waiting.
        if !is_full && !is_behind {
            let pause = if is_urgent { URGENT_CALL_INTERVAL } else { CALL_INTERVAL };
            sleep(pause.saturating_sub(called_at.elapsed())).await;
        }
    }
}

/// The removal of a settled order.
#[derive(Debug)]
struct Removal {
    order: Uuid,
    at: Instant,
    attempts_left: u8,
}

/// Settled orders, in the order in which they are to be removed.
#[derive(Debug, Default)]
struct Removals {
    waiting: VecDeque<Removal>,
}

impl Removals {
    /// Adds the settled orders; returns the placed ones that were not settled, with their due
    /// times.
    fn defer(&mut self, events: impl Iterator<Item = OrderEvent>) -> BTreeMap<Uuid, Instant> {
        let mut placed = BTreeMap::new();
        for event in events {
            match event {
                OrderEvent::Placed { order, due_at } => {
                    placed.insert(order.0, due_at);
                }
                OrderEvent::Settled { order, at } => {
                    if placed.remove(&order.0).is_none() {
                        let at = at + REMOVAL_DELAY;
                        let attempts_left = MAX_REMOVAL_ATTEMPTS;
                        self.waiting.push_back(Removal { order: order.0, at, attempts_left });
                    }
                }
            }
        }
        placed
    }

    /// Returns the time of the next removal; a time in the past if there is none.
    fn next_at(&self) -> Instant {
        self.waiting.front().map_or_else(Instant::now, |it| it.at)
    }

    /// Takes the orders whose time has come, at most [`MAX_BATCH_SIZE`].
    fn take(&mut self, now: Instant) -> Vec<Removal> {
        let is_due = |removals: &VecDeque<Removal>| {
            let is_full = removals.len() > MAX_WAITING_REMOVALS;
            removals.front().is_some_and(|it| is_full || it.at <= now)
        };
        let mut due = Vec::new();
        while due.len() < MAX_BATCH_SIZE && is_due(&self.waiting) {
            due.extend(self.waiting.pop_front());
        }
        due
    }

    /// Adds the orders of a batch of which some were absent, perhaps not added yet.
    fn retry(&mut self, batch: Vec<Removal>) {
        let at = Instant::now() + REMOVAL_DELAY;
        let next = |it: Removal| Removal { at, attempts_left: it.attempts_left - 1, ..it };
        self.waiting.extend(batch.into_iter().map(next).filter(|it| it.attempts_left > 0));
    }
}

/// Counts the orders that were not added, and logs the first failure of several.
fn record_added(orders: usize, result: Result<Vec<Uuid>, RedisError>, is_failing: &mut bool) {
    let missing = match result {
        Ok(rejected) => {
            *is_failing = false;
            rejected.len()
        }
        Err(error) => {
            if !std::mem::replace(is_failing, true) {
                tracing::warn!(%error, "placed orders cannot be added to the delay queue");
            }
            orders
        }
    };
    metrics::counter!(EXPIRY_ENQUEUE_FAILURES).increment(missing as u64);
}
