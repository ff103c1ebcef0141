//! Adds placed orders to the delay queue, in batches.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::queue::DelayQueue;
use crate::metrics::EXPIRY_ENQUEUE_FAILURES;
use crate::shop::expiry::PlacedOrder;

/// Orders added in one call: a millisecond or two of Redis's time.
const MAX_BATCH_SIZE: usize = 500;
/// Interval of the calls: orders are due in a quarter of an hour, so once a second is enough.
const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// After an order that is due within this time, [`URGENT_CALL_INTERVAL`] applies: the next orders
/// are probably urgent, too.
const URGENT_THRESHOLD: Duration = Duration::from_secs(5);
const URGENT_CALL_INTERVAL: Duration = Duration::from_millis(100);

/// Adds placed orders to the queue until all senders are gone.
///
/// An order that Redis does not accept is not lost: the worker finds it in Postgres.
pub(super) async fn enqueue(queue: DelayQueue, mut receiver: mpsc::Receiver<PlacedOrder>) {
    let mut placed = Vec::with_capacity(MAX_BATCH_SIZE);
    let mut is_failing = false;
    while receiver.recv_many(&mut placed, MAX_BATCH_SIZE).await > 0 {
        let called_at = Instant::now();
        let is_urgent = placed.iter().any(|placed| placed.due_at < called_at + URGENT_THRESHOLD);
        // The queue counts due times from this call.
        let due_in = |placed: PlacedOrder| placed.due_at.saturating_duration_since(called_at);
        let entries: Vec<(Uuid, Duration)> =
            placed.drain(..).map(|placed| (placed.order.0, due_in(placed))).collect();
        match queue.add(&entries).await {
            Ok(rejected) => {
                metrics::counter!(EXPIRY_ENQUEUE_FAILURES).increment(rejected.len() as u64);
                is_failing = false;
            }
            Err(error) => {
                metrics::counter!(EXPIRY_ENQUEUE_FAILURES).increment(entries.len() as u64);
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "placed orders cannot be added to the delay queue");
                }
            }
        }
        // After a full batch more orders are waiting.
        if entries.len() < MAX_BATCH_SIZE {
            let pause = if is_urgent { URGENT_CALL_INTERVAL } else { CALL_INTERVAL };
            sleep(pause.saturating_sub(called_at.elapsed())).await;
        }
    }
}
