//! Reconciles an item of `pre-deduct` with its ledger, which knows every order.
//!
//! Settles the orders; cancels or refunds, newest first, those for which there are no units; and
//! sets the counter to what the row has. The audit holds afterwards, unless more are to be
//! cancelled than one request can.
//!
//! Guarantees nothing about an order that is between the counter and Postgres: its units count as
//! lost, and are sold again. Reconcile when no order is on its way. A restock on its way makes it
//! fail.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use uuid::Uuid;

use super::counter::StockCounter;
use super::statements::{RowStock, UnsettledOrder, newest_unsettled, row_stock, settle};
use crate::command::return_order::{Return, ReturnedBy};
use crate::engine::{context_for_whole_item, return_order};
use crate::failure::{Error, Failure, Rejection};
use crate::model::OrderStatus;
use crate::strategy::row_lock;
use crate::{OrderId, RequestContext, Shop, Sku};
use holdfast_base::messages::message;

/// Maximum number of attempts, if orders change the counter each time.
const MAX_ATTEMPTS: u32 = 5;
/// Upper bound of the orders that one reconciliation cancels.
const MAX_CANCELLED: usize = 1_000;
/// Time before the deadline from which no further order is cancelled.
const TIME_TO_FINISH: Duration = Duration::from_secs(2);

/// What a reconciliation found and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reconciliation {
    /// The counter in Redis before; null if there was none.
    pub counter_before: Option<i64>,
    /// The counter now: the units of the item's row.
    pub counter: i64,
    /// Units that had left the counter, and that no order has: for sale again.
    pub undersold: i64,
    /// Units of orders that did not exist.
    pub oversold: i64,
    /// The orders that were cancelled or refunded for want of units, newest first.
    pub cancelled: Vec<OrderId>,
    /// Units of orders that have none still, because one request cannot cancel so many: reconcile
    /// again.
    pub unsettled: i64,
}

/// Reconciles a lab item. Fails with [`Error::Conflicts`] if orders keep changing the counter, or a
/// restock is about to.
pub async fn reconcile(
    shop: &Shop,
    context: &RequestContext,
    sku: &Sku,
) -> Result<Reconciliation, Failure> {
    let context = context_for_whole_item(shop, context, std::slice::from_ref(sku)).await?;
    if !context.in_lab {
        let why = message!("problem-not-pre-deducted", sku);
        return Err(Rejection::Forbidden(why).into());
    }

    let counter = StockCounter::new(&shop.locks, sku);
    let mut oversold = 0;
    let mut cancelled = Vec::new();

    for _ in 0..MAX_ATTEMPTS {
        // Before the row is read: a change from here on is seen below.
        let before = counter.get().await.map_err(holdfast_lock::Error::from)?;
        let mut row = settled_row(shop, sku).await?;
        oversold += (-row.free()).max(0);

        while row.free() < 0 && cancelled.len() < MAX_CANCELLED {
            if Instant::now() + TIME_TO_FINISH > context.deadline {
                break;
            }
            let Some(order) = newest_unsettled(&shop.pool, sku).await? else { break };
            if cancel(shop, &context, order).await? {
                cancelled.push(order.id);
            }
            // Its units come to the row, which settles older orders with them.
            row = settled_row(shop, sku).await?;
        }

        let units = row.free().max(0);
        if counter.replace(before, units).await.map_err(holdfast_lock::Error::from)? {
            let undersold = before.map_or(0, |before| (units - before).max(0));
            return Ok(Reconciliation {
                counter_before: before,
                counter: units,
                undersold,
                oversold,
                cancelled,
                unsettled: (-row.free()).max(0),
            });
        }
    }

    let cause = "orders or a restock changed the counter meanwhile".to_owned();
    Err(Error::Conflicts { attempts: MAX_ATTEMPTS, cause }.into())
}

/// Cancels or refunds an order. Returns `false` if its status was changed since it was read.
async fn cancel(
    shop: &Shop,
    context: &RequestContext,
    order: UnsettledOrder,
) -> Result<bool, Failure> {
    let context = RequestContext {
        strategy: &row_lock::STRATEGY,
        request_id: Uuid::now_v7(),
        ..context.clone()
    };
    let UnsettledOrder { id, user, status } = order;
    let customer = ReturnedBy::Customer(user);
    let how = if status == OrderStatus::Pending { Return::Cancel } else { Return::Refund };
    match return_order(shop, &context, customer, id, None, how).await {
        Ok(_) => Ok(true),
        Err(Failure::Rejected(Rejection::OrderState { .. })) => Ok(false),
        Err(failure) => Err(failure),
    }
}

async fn settled_row(shop: &Shop, sku: &Sku) -> Result<RowStock, Failure> {
    settle(&shop.pool, sku).await?;
    let row = row_stock(&mut *shop.pool.acquire().await?, sku).await?;
    Ok(row.ok_or_else(|| Rejection::no_item(sku))?)
}
