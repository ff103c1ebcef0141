//! Expires a group of orders, each alone if the group fails, and updates the queue.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_lock::LockKind;
use rand::RngExt as _;
use uuid::Uuid;

use super::failures;
use super::group::DueOrder;
use super::queue::{CLAIM_TIMEOUT, DelayQueue};
use crate::ladder::Mechanism;
use crate::metrics::{EXPIRED_ORDERS, EXPIRY_FAILURES};
use crate::shop::{Error, Failure, OrderId, RequestOptions, Shop, engine};

/// Pause before a retry after a busy lock or an unavailable server; up to as much jitter is added.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// TTL of the locks: those of a killed worker expire no later than its claims.
const LOCK_TTL: Duration = CLAIM_TIMEOUT;

/// Expires orders. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ExpiryExecutor {
    pub(super) shop: Shop,
    pub(super) queue: DelayQueue,
}

/// The result of a group, apart from the expired orders.
#[derive(Debug, Default)]
pub(super) struct ExpiryResult {
    /// Orders that did not expire, usually because another transaction has locked their rows.
    pub(super) locked: Vec<OrderId>,
    /// True if a server is unavailable or overloaded: other workers should take the pending orders.
    pub(super) is_unavailable: bool,
}

impl ExpiryExecutor {
    pub(super) async fn expire(
        &self,
        group: Vec<DueOrder>,
        options: RequestOptions,
    ) -> ExpiryResult {
        let orders: Vec<OrderId> = group.iter().map(|(order, _)| *order).collect();
        let mut result = ExpiryResult::default();
        match self.try_expire(group.clone(), &options).await {
            Ok(group_result) => result = group_result,
            // A defective order must not hold up the others.
            Err(cause) if group.len() > 1 => {
                tracing::warn!(
                    cause,
                    orders = group.len(),
                    "a group of unpaid orders failed; each is expired alone"
                );
                let mut group = group.into_iter();
                while !result.is_unavailable
                    && let Some(due) = group.next()
                {
                    let order = due.0;
                    match self.try_expire(vec![due], &self.default_options()).await {
                        Ok(ExpiryResult { locked, is_unavailable }) => {
                            result.locked.extend(locked);
                            result.is_unavailable = is_unavailable;
                        }
                        Err(cause) => self.record_failure(order, &cause).await,
                    }
                }
                self.postpone_briefly(group.map(|(order, _)| order)).await;
            }
            Err(cause) => self.record_failure(orders[0], &cause).await,
        }
        result
    }

    /// Expires orders, or returns the cause of a defect. A lock that was not acquired, or an
    /// unavailable server, is not a defect of an order: the orders are retried soon.
    async fn try_expire(
        &self,
        group: Vec<DueOrder>,
        options: &RequestOptions,
    ) -> Result<ExpiryResult, String> {
        let ids: BTreeSet<OrderId> = group.iter().map(|(order, _)| *order).collect();
        match engine::expire_orders(&self.shop, options, group).await {
            Ok(expired) => {
                metrics::counter!(EXPIRED_ORDERS).increment(expired.len() as u64);
                let done: Vec<Uuid> = expired.iter().map(|order| order.0).collect();
                self.remove(&done).await;
                let locked = ids.difference(&expired).copied().collect();
                Ok(ExpiryResult { locked, is_unavailable: false })
            }
            Err(Failure::Rejected(rejection)) => {
                tracing::debug!(?rejection, "the expiry of unpaid orders is postponed");
                self.postpone_briefly(ids).await;
                Ok(ExpiryResult::default())
            }
            Err(Failure::Error(Error::Bug(cause))) => Err(cause),
            Err(Failure::Error(error)) => {
                tracing::debug!(%error, "the expiry of unpaid orders is postponed");
                self.postpone_briefly(ids).await;
                let is_unavailable =
                    matches!(error, Error::Unavailable { .. } | Error::Overloaded(_));
                Ok(ExpiryResult { locked: Vec::new(), is_unavailable })
            }
        }
    }

    async fn record_failure(&self, order: OrderId, cause: &str) {
        metrics::counter!(EXPIRY_FAILURES).increment(1);
        match failures::record(&self.shop, order, cause).await {
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
        let later =
            orders.into_iter().map(|order| (order.0, RETRY_DELAY + random_up_to(RETRY_DELAY)));
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

pub(super) fn random_up_to(max: Duration) -> Duration {
    max.mul_f64(rand::rng().random_range(0.0..1.0))
}
