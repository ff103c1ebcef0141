//! What one replica's worker has in hand, and the renewal of its claims.
//!
//! Guarantees: whatever the worker waits for, what is in hand stays claimed, as long as Redis
//! answers. Does not see that the hand is emptied: what stays in it is nobody else's until the
//! process ends, so the worker lets go of what it can't give back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::queue::DelayQueue;
use crate::shop::OrderId;

/// Three times within a claim: twice it may fail.
const RENEW_EVERY: Duration = Duration::from_millis(300);
/// So many in one script: a millisecond of Redis's time.
const MOST_AT_ONCE: usize = 500;

/// All orders that are in flight or pending, each once. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Hand(Arc<Mutex<BTreeSet<OrderId>>>);

impl Hand {
    /// Takes those in hand that are not in it yet; the others are taken out of `orders`.
    pub(super) fn take<T>(&self, orders: &mut Vec<T>, id: impl Fn(&T) -> OrderId) {
        let mut held = self.0.lock();
        orders.retain(|order| held.insert(id(order)));
    }

    /// Lets go of them: their claims end by themselves.
    pub(super) fn let_go<'a>(&self, orders: impl IntoIterator<Item = &'a OrderId>) {
        let mut held = self.0.lock();
        for order in orders {
            held.remove(order);
        }
    }

    /// Renews the claims of what is in hand, for ever. When dropped, they end.
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
