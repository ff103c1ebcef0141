//! Whether a request is admitted: its items and its order exist, its options are allowed on them,
//! and its user may order more.

use std::borrow::Cow;

use crate::command::Command as _;
use crate::command::place_order::PlaceOrder;
use crate::failure::{Error, Failure, Rejection};
use crate::model::{ItemKind, Order};
use crate::query::orders;
use crate::store::accounts::{LAB_CENTS, open_lab_account};
use crate::store::items::KnownItem;
use crate::strategy::data_path::{Mismatch, OwnItems};
use crate::{OrderId, RequestContext, Shop, Sku, Strategy, UserId};
use holdfast_base::messages::message;

/// Returns the context of an order. Rejects one that [`context_for_items`] or the strategy of its
/// items rejects, and one of a user with too many unpaid ones.
pub async fn admit_order<'a>(
    shop: &Shop,
    context: &'a RequestContext,
    command: &PlaceOrder,
) -> Result<Cow<'a, RequestContext>, Failure> {
    let named = context.strategy;
    let context = context_for_items(shop, context, &command.reads().items).await?;
    if let Some(own) = own_items(shop, context.strategy) {
        if named.name != context.strategy.name {
            // Not silently: what theirs promises of a sale may be less than what others promise.
            return Err(own.reject(Mismatch::OtherStrategy).into());
        }
        own.admit(command)?;
    }
    if let Some(max) = shop.max_unpaid_orders {
        let window = context.payment_window.max(shop.payment_window);
        shop.engine.unpaid.admit(command.idempotency().user, max, window).await?;
    }
    Ok(context)
}

/// Returns the user's lab account, which is opened at the first payment in the lab.
pub async fn lab_account(shop: &Shop, user: UserId) -> Result<UserId, Error> {
    let opening = open_lab_account(&shop.pool, user, LAB_CENTS);
    // Payments of a user that come together wait for one opening.
    let opened = shop.engine.lab_accounts.try_get_with(user, opening).await;
    opened.map_err(|error| Error::clone(&error))?;
    Ok(user.lab_account())
}

pub async fn own_order(shop: &Shop, user: UserId, order: OrderId) -> Result<Order, Failure> {
    let found = orders::order(shop, user, order).await?;
    found.ok_or_else(|| Rejection::no_order(order).into())
}

/// Returns the context of a request on these items. Rejects an unknown item, items of both the lab
/// and the shop, items of which only some are made for one strategy and, unless all are the lab's,
/// options that could lose sales or money, keep units too long, or are not the user's to set.
pub async fn context_for_items<'a>(
    shop: &Shop,
    context: &'a RequestContext,
    skus: &[Sku],
) -> Result<Cow<'a, RequestContext>, Failure> {
    let items = shop.engine.known_items.find(skus).await?;
    if let Some(strategy) = items.iter().find_map(|item| item.sold_under) {
        // It takes all items of a command in its way, or none.
        let other = first(skus, &items, |item| item.sold_under != Some(strategy));
        if let (Some(own), Some(other)) = (own_items(shop, strategy), other) {
            return Err(own.reject(Mismatch::Mixed(other)).into());
        }
        return Ok(Cow::Owned(RequestContext { in_lab: true, strategy, ..context.clone() }));
    }
    if let Some(own) = own_items(shop, context.strategy) {
        return Err(own.reject(Mismatch::OtherItems).into());
    }
    let Some(own) = first(skus, &items, |item| item.kind == ItemKind::Shop) else {
        return Ok(Cow::Owned(RequestContext { in_lab: true, ..context.clone() }));
    };

    // One account, one share of the connections and one set of options apply to an order.
    if let Some(lab) = first(skus, &items, |item| item.kind == ItemKind::Lab) {
        let why = message!("problem-lab-and-shop", lab, own);
        return Err(Rejection::invalid("lines", why).into());
    }
    check_context(shop, context, own)?;
    Ok(Cow::Borrowed(context))
}

fn first<'a>(
    skus: &'a [Sku],
    items: &[KnownItem],
    is_wanted: impl Fn(&KnownItem) -> bool,
) -> Option<&'a Sku> {
    items.iter().position(is_wanted).map(|at| &skus[at])
}

fn own_items<'a>(shop: &'a Shop, strategy: &Strategy) -> Option<&'a dyn OwnItems> {
    shop.engine.data_paths.own_items(strategy)
}

/// [`context_for_items`] of a command that changes an item's own row. Rejects items that are made
/// for one strategy, whose rows are not locked.
pub async fn context_for_whole_item<'a>(
    shop: &Shop,
    context: &'a RequestContext,
    skus: &[Sku],
) -> Result<Cow<'a, RequestContext>, Failure> {
    let context = context_for_items(shop, context, skus).await?;
    if let Some(own) = own_items(shop, context.strategy) {
        return Err(own.reject(Mismatch::Row).into());
    }
    Ok(context)
}

fn check_context(shop: &Shop, context: &RequestContext, sku: &Sku) -> Result<(), Rejection> {
    let why = if context.lab.as_ref().is_some_and(|lab| lab.lab_items_only) {
        message!("problem-kept-headers")
    } else if !context.strategy.is_safe_beside(shop.strategy) || context.ttl.is_some() {
        let (strategy, beside) = (context.strategy.name, shop.strategy.name);
        message!("problem-kept-strategy", strategy, beside)
    } else if context.payment_window > shop.payment_window {
        message!("problem-kept-window", max_ms = shop.payment_window.as_millis())
    } else {
        return Ok(());
    };

    Err(Rejection::Forbidden(message!("problem-kept-to-lab", sku, why = why)))
}
