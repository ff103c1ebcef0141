//! Cancels and refunds an order, on behalf of its customer or of an admin: the same command under
//! the same locks, so that units and money return once.
//! Tests: `tests/it/admin_returns.rs`.

use std::sync::Arc;

use super::admission::{context_for_items, lab_account, own_order};
use super::submit;
use crate::command::return_order::{Return, ReturnOrder, ReturnedBy};
use crate::failure::{Execution, Failure, Rejection};
use crate::model::Order;
use crate::query::order_search;
use crate::{IdempotencyKey, OrderId, RequestContext, Shop, UserId};

pub async fn return_order(
    shop: &Shop,
    context: &RequestContext,
    by: ReturnedBy,
    order: OrderId,
    key: Option<IdempotencyKey>,
    how: Return,
) -> Result<Execution, Failure> {
    let (customer, order) = order_to_return(shop, &by, order).await?;
    let context = context_for_items(shop, context, &order.skus()).await?;
    let refund_to = match how {
        Return::Cancel => None,
        Return::Refund => {
            if let Some(own) = shop.engine.data_paths.own_items(context.strategy) {
                own.admit_refund(shop.strategy)?;
            }
            // The account that pays for lab items, even if the payment is still to come: lab money
            // must not reach the shop.
            Some(if context.in_lab { lab_account(shop, customer).await? } else { customer })
        }
    };
    let command = ReturnOrder::new(by, order, refund_to, key);
    submit(shop, &context, Arc::new(command)).await
}

/// Returns an order and its customer: an admin returns anybody's.
async fn order_to_return(
    shop: &Shop,
    by: &ReturnedBy,
    order: OrderId,
) -> Result<(UserId, Order), Failure> {
    let customer = match by {
        ReturnedBy::Customer(user) => *user,
        ReturnedBy::Admin(..) => {
            let owner = order_search::owner(shop, order).await?;
            owner.ok_or_else(|| Rejection::no_order(order))?.0
        }
    };
    Ok((customer, own_order(shop, customer, order).await?))
}
