//! The orders that one replica's worker holds, and the renewal of their claims.
//!
//! Guarantees: while Redis responds, these orders stay claimed, also while the worker is blocked.
//! Does not detect abandoned orders: an order stays claimed until the worker removes it from the
//! set or the process ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::group::DueOrder;
use super::queue::DelayQueue;
use crate::shop::OrderId;

/// Interval of the renewal: three per visibility timeout, of which two may fail.
const RENEW_INTERVAL: Duration = Duration::from_millis(300);
/// Claims per script: a millisecond of Redis's time.
const MAX_BATCH_SIZE: usize = 500;

/// All orders that are in flight or pending, each once. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct ClaimRenewer(Arc<Mutex<BTreeSet<OrderId>>>);

impl ClaimRenewer {
    /// Adds orders that are not in the set; removes the others from `orders`.
    pub(super) fn add(&self, orders: &mut Vec<DueOrder>) {
        let mut claimed = self.0.lock();
        orders.retain(|(order, _)| claimed.insert(*order));
    }

    /// Removes orders from the set: their claims expire.
    pub(super) fn remove(&self, orders: &[OrderId]) {
        let mut claimed = self.0.lock();
        for order in orders {
            claimed.remove(order);
        }
    }

    /// Renews the claims of the orders in the set, forever. When dropped, they expire.
    pub(super) async fn renew_forever(&self, queue: &DelayQueue) {
        loop {
            let renew_at = Instant::now() + RENEW_INTERVAL;
            let claimed: Vec<Uuid> = self.0.lock().iter().map(|order| order.0).collect();
            for batch in claimed.chunks(MAX_BATCH_SIZE) {
                if let Err(error) = queue.renew(batch).await {
                    tracing::debug!(%error, "claims are not renewed");
                    break;
                }
            }
            sleep_until(renew_at).await;
        }
    }
}
