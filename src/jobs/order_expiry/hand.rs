//! The orders that one replica's worker holds, and the renewal of their claims.
//!
//! Guarantees: while Redis responds, these orders stay claimed, also while the worker is blocked.
//! Does not detect abandoned orders: an order stays claimed until the worker lets go of it or the
//! process ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::queue::DelayQueue;
use crate::shop::OrderId;

/// Interval of the renewal: three per claim, of which two may fail.
const RENEW_EVERY: Duration = Duration::from_millis(300);
/// Claims per script: a millisecond of Redis's time.
const MOST_AT_ONCE: usize = 500;

/// All orders that are in flight or pending, each once. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Hand(Arc<Mutex<BTreeSet<OrderId>>>);

impl Hand {
    /// Adds orders that are not in the set; removes the others from `orders`.
    pub(super) fn take<T>(&self, orders: &mut Vec<T>, id: impl Fn(&T) -> OrderId) {
        let mut held = self.0.lock();
        orders.retain(|order| held.insert(id(order)));
    }

    /// Removes orders from the set: their claims expire.
    pub(super) fn let_go<'a>(&self, orders: impl IntoIterator<Item = &'a OrderId>) {
        let mut held = self.0.lock();
        for order in orders {
            held.remove(order);
        }
    }

    /// Renews the claims of the orders in the set, forever. When dropped, they expire.
    pub(super) async fn keep(&self, queue: &DelayQueue) {
        loop {
            let renew_at = Instant::now() + RENEW_EVERY;
            let ours: Vec<Uuid> = self.0.lock().iter().map(|order| order.0).collect();
            for some in ours.chunks(MOST_AT_ONCE) {
                if let Err(error) = queue.renew(some).await {
                    tracing::debug!(%error, "claims are not renewed");
                    break;
                }
            }
            sleep_until(renew_at).await;
        }
    }
}
