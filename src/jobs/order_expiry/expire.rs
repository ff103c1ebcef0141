//! Expires a group of orders, in halves if the group fails, and updates the queue.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_lock::LockKind;
use holdfast_lock::clock::jittered;
use tracing::{Instrument as _, error_span};
use uuid::Uuid;

use super::failures;
use super::group::DueOrder;
use super::queue::{DelayQueue, VISIBILITY_TIMEOUT};
use crate::locks::Mechanism;
use crate::metrics::{EXPIRED_ORDERS, EXPIRY_FAILURES};
use crate::shop::{Error, Failure, OrderId, RequestOptions, Shop, engine, within};

/// Mean pause before a retry after a busy lock or an unavailable server.
const RETRY_DELAY: Duration = Duration::from_millis(750);
/// Pause before an order whose row is locked is retried: it is being paid, or expired by another
/// worker.
const ROW_LOCK_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Timeout of the record of a failure, during which the order's items are busy.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// TTL of the locks: those of a killed worker expire no later than its claims.
const LOCK_TTL: Duration = VISIBILITY_TIMEOUT;

/// Expires orders. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ExpiryExecutor {
    pub(super) shop: Shop,
    pub(super) queue: DelayQueue,
}

impl ExpiryExecutor {
    /// Expires a group. Returns whether a server is unavailable: then other workers should take the
    /// pending orders.
    pub(super) async fn expire(&self, group: Vec<DueOrder>, options: RequestOptions) -> bool {
        let span = error_span!(parent: None, "expiry", orders = group.len());
        self.expire_in_parts(group, options).instrument(span).await
    }

    async fn expire_in_parts(&self, group: Vec<DueOrder>, mut options: RequestOptions) -> bool {
        let mut groups = vec![group];
        while let Some(mut group) = groups.pop() {
            match self.try_expire(group.clone(), &options).await {
                Ok(false) => {}
                Ok(true) => {
                    let left = groups.into_iter().flatten().map(|(order, _)| order);
                    self.postpone_briefly(left).await;
                    return true;
                }
                Err(cause) => match group[..] {
                    [(order, _)] => self.record_failure(order, &cause).await,
                    // A defective order must not delay the others.
                    _ => {
                        let orders = group.len();
                        tracing::warn!(cause, orders, "unpaid orders failed; trying halves");
                        groups.push(group.split_off(orders / 2));
                        groups.push(group);
                    }
                },
            }
            options = self.default_options();
        }
        false
    }

    /// Expires orders; returns whether a server is unavailable, or the cause of a defect. A lock
    /// that was not acquired, or an unavailable server, is not a defect of an order: the orders are
    /// retried soon.
    async fn try_expire(
        &self,
        group: Vec<DueOrder>,
        options: &RequestOptions,
    ) -> Result<bool, String> {
        let ids: BTreeSet<OrderId> = group.iter().map(|(order, _)| *order).collect();
        let failure = match engine::expire_orders(&self.shop, options, group).await {
            Ok(expired) => {
                metrics::counter!(EXPIRED_ORDERS).increment(expired.len() as u64);
                self.remove(&expired.iter().map(|order| order.0).collect::<Vec<_>>()).await;
                let locked = ids.difference(&expired);
                let retries: Vec<_> = locked.map(|order| (order.0, ROW_LOCK_RETRY_DELAY)).collect();
                self.postpone(&retries).await;
                return Ok(false);
            }
            Err(Failure::Error(Error::Bug(cause))) => return Err(cause),
            Err(failure) => failure,
        };
        tracing::debug!(%failure, "the expiry of unpaid orders is postponed");
        self.postpone_briefly(ids).await;
        Ok(matches!(failure, Failure::Error(error) if error.is_outage()))
    }

    async fn record_failure(&self, order: OrderId, cause: &str) {
        metrics::counter!(EXPIRY_FAILURES).increment(1);
        match within(RECORD_TIMEOUT, failures::record(&self.shop, order, cause)).await {
            Ok(Some(pause)) => {
                tracing::warn!(%order, cause, ?pause, "an unpaid order could not be expired");
                self.postpone(&[(order.0, pause)]).await;
            }
            Ok(None) => {
                tracing::error!(%order, cause, "an unpaid order is parked");
                self.remove(&[order.0]).await;
            }
            // The order is due again soon, fails again, and is recorded then.
            Err(error) => {
                tracing::debug!(%order, cause, %error, "a failed expiry could not be recorded")
            }
        }
    }

    /// Postpones orders by a short time with jitter.
    pub(super) async fn postpone_briefly(&self, orders: impl IntoIterator<Item = OrderId>) {
        let later = orders.into_iter().map(|order| (order.0, jittered(RETRY_DELAY)));
        self.postpone(&later.collect::<Vec<_>>()).await;
    }

    /// Removes orders from the queue. An order that is not removed is due again when its claim
    /// expires, and is removed then.
    pub(super) async fn remove(&self, ids: &[Uuid]) {
        if let Err(error) = self.queue.remove(ids).await {
            tracing::debug!(%error, "expired orders could not be removed from the delay queue");
        }
    }

    pub(super) async fn postpone(&self, entries: &[(Uuid, Duration)]) {
        if let Err(error) = self.queue.postpone(entries).await {
            tracing::debug!(%error, "orders could not be postponed in the delay queue");
        }
    }

    pub(super) fn default_options(&self) -> RequestOptions {
        let options = RequestOptions::new(&self.shop, Uuid::now_v7());
        // A fenced write rejects a stale holder itself, so a short lease costs nothing.
        let fenced = options.strategy.lock == Some(Mechanism::Lock(LockKind::Fenced));
        RequestOptions { ttl: fenced.then_some(LOCK_TTL).or(options.ttl), ..options }
    }
}
