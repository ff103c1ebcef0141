//! Expires a group of orders, each alone if the group fails, and updates the queue.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::RngExt as _;
use uuid::Uuid;

use super::failures;
use super::group::Due;
use super::queue::{CLAIM, DelayQueue};
use crate::lock::Kind;
use crate::shop::{Error, Failure, OrderId, RequestOptions, Shop, engine};

/// Pause before a retry after a busy lock or an unavailable server; up to as much jitter is added.
const AGAIN: Duration = Duration::from_millis(500);

/// TTL of the locks: those of a killed worker expire no later than its claims.
const LEASE: Duration = CLAIM;

/// Executes the expiry of orders. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Giver {
    pub(super) shop: Shop,
    pub(super) queue: DelayQueue,
}

/// The result of a group, apart from the expired orders.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Orders that did not expire, usually because another transaction has locked their rows.
    pub(super) taken: Vec<OrderId>,
    /// True if a server is unavailable or overloaded: other workers should take the pending orders.
    pub(super) away: bool,
}

impl Giver {
    pub(super) async fn give_back(&self, group: Vec<Due>, conditions: RequestOptions) -> Came {
        let orders: Vec<OrderId> = group.iter().map(|(order, _)| *order).collect();
        let mut came = Came::default();
        match self.attempt(group.clone(), &conditions).await {
            Ok(this) => came = this,
            // A defective order must not hold up the others.
            Err(cause) if group.len() > 1 => {
                tracing::warn!(cause, orders = group.len(), "unpaid orders, one by one");
                let mut group = group.into_iter();
                while !came.away
                    && let Some(due) = group.next()
                {
                    let order = due.0;
                    match self.attempt(vec![due], &self.usual()).await {
                        Ok(Came { taken, away }) => {
                            came.taken.extend(taken);
                            came.away = away;
                        }
                        Err(cause) => self.failed(order, &cause).await,
                    }
                }
                self.leave_for_later(group.map(|(order, _)| order)).await;
            }
            Err(cause) => self.failed(orders[0], &cause).await,
        }
        came
    }

    /// Expires orders, or returns the cause of a defect. A lock that was not acquired, or an
    /// unavailable server, is not a defect of an order: the orders are retried soon.
    async fn attempt(&self, group: Vec<Due>, conditions: &RequestOptions) -> Result<Came, String> {
        let ids: BTreeSet<OrderId> = group.iter().map(|(order, _)| *order).collect();
        match engine::expire_orders(&self.shop, conditions, group).await {
            Ok(given_back) => {
                metrics::counter!("holdfast_unpaid_given_back_total")
                    .increment(given_back.len() as u64);
                let done: Vec<Uuid> = given_back.iter().map(|order| order.0).collect();
                self.forget(&done).await;
                let taken = ids.difference(&given_back).copied().collect();
                Ok(Came { taken, away: false })
            }
            Err(Failure::Rejected(rejection)) => {
                tracing::debug!(?rejection, "unpaid orders are left for later");
                self.leave_for_later(ids).await;
                Ok(Came::default())
            }
            Err(Failure::Error(Error::Bug(cause))) => Err(cause),
            Err(Failure::Error(error)) => {
                tracing::debug!(%error, "unpaid orders are left for later");
                self.leave_for_later(ids).await;
                let away = matches!(error, Error::Unavailable { .. } | Error::Overloaded(_));
                Ok(Came { taken: Vec::new(), away })
            }
        }
    }

    async fn failed(&self, order: OrderId, cause: &str) {
        metrics::counter!("holdfast_unpaid_failures_total").increment(1);
        match failures::record(&self.shop, order, cause).await {
            Ok(Some(pause)) => {
                tracing::warn!(%order, cause, ?pause, "an unpaid order could not be given back");
                self.put_off(&[(order.0, pause)]).await;
            }
            Ok(None) => {
                tracing::error!(%order, cause, "an unpaid order is parked");
                self.forget(&[order.0]).await;
            }
            // The order is due again soon, fails again, and is recorded then.
            Err(error) => tracing::debug!(%order, cause, %error, "a failure is not written down"),
        }
    }

    /// Postpones orders by a short time with jitter.
    pub(super) async fn leave_for_later(&self, orders: impl IntoIterator<Item = OrderId>) {
        let later = orders.into_iter().map(|order| (order.0, AGAIN + by_chance(AGAIN)));
        self.put_off(&later.collect::<Vec<_>>()).await;
    }

    /// Removes orders from the queue. An order that is not removed is due again when its claim
    /// expires, and is removed then.
    pub(super) async fn forget(&self, ids: &[Uuid]) {
        if let Err(error) = self.queue.remove(ids).await {
            tracing::debug!(%error, "the queue is not told what is done");
        }
    }

    pub(super) async fn put_off(&self, entries: &[(Uuid, Duration)]) {
        if let Err(error) = self.queue.put_off(entries).await {
            tracing::debug!(%error, "the queue is not told what is put off");
        }
    }

    pub(super) fn usual(&self) -> RequestOptions {
        let usual = RequestOptions::of(&self.shop, Uuid::now_v7());
        // A fenced write rejects a stale holder itself, so a short lease costs nothing.
        let fenced = usual.strategy.lock == Some(Kind::Fenced);
        RequestOptions { ttl: fenced.then_some(LEASE).or(usual.ttl), ..usual }
    }
}

pub(super) fn by_chance(most: Duration) -> Duration {
    most.mul_f64(rand::rng().random_range(0.0..1.0))
}
