//! Expires a group of orders, in halves if the group fails.

use std::time::Duration;

use tracing::{Instrument as _, error_span};
use uuid::Uuid;

use super::due::DueOrder;
use super::failures;
use crate::locks::Lock;
use crate::{Error, Failure, OrderId, RequestContext, Shop, engine, with_timeout};
use holdfast_base::metrics::{SECONDS, define_metrics};

/// Timeout of the record of a failure, during which the order's items are busy.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// TTL of the locks: those of a killed worker expire about as soon as its lease on the queue.
const LOCK_TTL: Duration = Duration::from_secs(1);

define_metrics! {
    EXPIRY_DELAY: "holdfast_expiry_delay_seconds", Histogram [] SECONDS,
        "From the due time of an unpaid order until it has expired";
    EXPIRED_ORDERS: "holdfast_expiry_orders_total", Counter [] &[],
        "Unpaid orders that expired and returned their units";
    EXPIRY_FAILURES: "holdfast_expiry_failures_total", Counter [] &[],
        "Failed attempts to expire an unpaid order";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupOutcome {
    Expired,
    /// A lock was not acquired, or an order is defective.
    Failed,
    /// A server is unavailable, perhaps only to this replica.
    Unavailable,
}

/// Expires a group, in halves if it fails because of a defect: a defective order must not delay the
/// others.
pub(super) async fn expire_group(
    shop: Shop,
    group: Vec<DueOrder>,
    mut context: RequestContext,
) -> GroupOutcome {
    let mut outcome = GroupOutcome::Expired;
    let mut parts = vec![group];
    while let Some(mut part) = parts.pop() {
        let span = error_span!(parent: None, "expiry", orders = part.len());
        match expire(&shop, &part, &context).instrument(span).await {
            Ok(GroupOutcome::Expired) => {}
            // The other parts would fail for the same reason; they stay due, and are read again.
            Ok(ended) => return ended,
            Err(cause) => {
                outcome = GroupOutcome::Failed;
                if let [order] = &part[..] {
                    record_failure(&shop, order.id, &cause).await;
                } else {
                    let orders = part.len();
                    tracing::warn!(cause, orders, "unpaid orders failed; trying halves");

                    parts.push(part.split_off(orders / 2));
                    parts.push(part);
                }
            }
        }

        // Each part has a deadline and a request id of its own, and the lab pauses only the first.
        context = default_context(&shop);
    }
    outcome
}

/// Expires orders in one transaction. Fails with the cause of a defect.
async fn expire(
    shop: &Shop,
    orders: &[DueOrder],
    context: &RequestContext,
) -> Result<GroupOutcome, String> {
    let units = orders.iter().map(|order| (order.id, order.units.clone())).collect();

    match engine::expire_orders(shop, context, units).await {
        // An order that is missing is locked, for example by a payment, or was settled.
        Ok(expired) => {
            metrics::counter!(EXPIRED_ORDERS).increment(expired.len() as u64);
            for order in orders.iter().filter(|order| expired.contains(&order.id)) {
                metrics::histogram!(EXPIRY_DELAY).record(order.due_at.elapsed().as_secs_f64());
            }
            Ok(GroupOutcome::Expired)
        }
        Err(Failure::Error(Error::Bug(cause))) => Err(cause),
        // A lock or a server, which says nothing about the orders: none has failed an attempt.
        Err(failure) => {
            tracing::debug!(%failure, "the expiry of unpaid orders is tried again");
            let is_outage = matches!(failure, Failure::Error(error) if error.is_outage());
            Ok(if is_outage { GroupOutcome::Unavailable } else { GroupOutcome::Failed })
        }
    }
}

async fn record_failure(shop: &Shop, order: OrderId, cause: &str) {
    metrics::counter!(EXPIRY_FAILURES).increment(1);

    match with_timeout(RECORD_TIMEOUT, failures::record(shop, order, cause)).await {
        Ok(false) => tracing::warn!(%order, cause, "an unpaid order could not be expired"),
        Ok(true) => tracing::error!(%order, cause, "an unpaid order is parked"),
        // The order is read again soon, fails again, and is recorded then.
        Err(error) => {
            tracing::debug!(%order, cause, %error, "a failed expiry could not be recorded");
        }
    }
}

pub(super) fn default_context(shop: &Shop) -> RequestContext {
    let context = RequestContext::new(shop, Uuid::now_v7());

    // A fenced write rejects a stale holder itself, so a short lease costs nothing.
    let is_fenced = context.strategy.lock == Some(Lock::Fenced);
    RequestContext { ttl: is_fenced.then_some(LOCK_TTL).or(context.ttl), ..context }
}
