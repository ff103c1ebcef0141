//! Tells the queue of orders that were placed: many at once, so that an order costs no call of its
//! own.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::queue::DelayQueue;
use crate::shop::orders::unpaid::Placed;

/// So many go into one script: a millisecond of Redis's time.
const MOST_AT_ONCE: usize = 500;
/// What is due in a quarter of an hour can wait a second to be told: one call a second, whatever
/// the shop sells.
const PAUSE: Duration = Duration::from_secs(1);
/// But not what is due so soon; then the next ones probably are too.
const SOON: Duration = Duration::from_secs(5);
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// Listens until nobody can speak any more.
///
/// An order that is not told because Redis was away is not lost: the worker finds it in Postgres.
pub(super) async fn feed(queue: DelayQueue, mut heard: mpsc::Receiver<Placed>) {
    let mut placed = Vec::with_capacity(MOST_AT_ONCE);
    let mut away = false;
    while heard.recv_many(&mut placed, MOST_AT_ONCE).await > 0 {
        let told = Instant::now();
        let soon = placed.iter().any(|placed| placed.due_at < told + SOON);
        // From now on it counts for the queue; they have waited for this call.
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
        // A full hand is not the last one.
        if entries.len() < MOST_AT_ONCE {
            let pause = if soon { SHORT_PAUSE } else { PAUSE };
            sleep(pause.saturating_sub(told.elapsed())).await;
        }
    }
}
