//! Adds placed orders to the delay queue, in batches.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::queue::DelayQueue;
use crate::shop::expiry::Placed;

/// Orders added in one call: about a millisecond of Redis's time.
const MAX_BATCH_SIZE: usize = 1_000;
/// Interval of the calls: orders are due in a quarter of an hour, so once a second is enough.
const PAUSE: Duration = Duration::from_secs(1);
/// After an order that is due within this time, [`SHORT_PAUSE`] applies: the next are probably
/// urgent, too.
const SOON: Duration = Duration::from_secs(5);
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// Adds placed orders to the queue until all senders are gone.
///
/// An order that Redis does not accept is not lost: the worker finds it in Postgres.
pub(super) async fn feed(queue: DelayQueue, mut heard: mpsc::Receiver<Placed>) {
    let mut placed = Vec::with_capacity(MAX_BATCH_SIZE);
    let mut away = false;
    while heard.recv_many(&mut placed, MAX_BATCH_SIZE).await > 0 {
        let told = Instant::now();
        let soon = placed.iter().any(|placed| placed.due_at < told + SOON);
        // The queue counts due times from this call.
        let due_in = |placed: Placed| placed.due_at.saturating_duration_since(told);
        let entries: Vec<(Uuid, Duration)> =
            placed.drain(..).map(|placed| (placed.order.0, due_in(placed))).collect();
        match queue.add(&entries).await {
            Ok(refused) => {
                metrics::counter!("holdfast_unpaid_untold_total").increment(refused.len() as u64);
                away = false;
            }
            Err(error) => {
                metrics::counter!("holdfast_unpaid_untold_total").increment(entries.len() as u64);
                if !std::mem::replace(&mut away, true) {
                    tracing::warn!(%error, "the queue of unpaid orders can't be told");
                }
            }
        }
        // After a full batch more orders are waiting.
        if entries.len() < MAX_BATCH_SIZE {
            let pause = if soon { SHORT_PAUSE } else { PAUSE };
            sleep(pause.saturating_sub(told.elapsed())).await;
        }
    }
}
