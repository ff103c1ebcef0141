//! The functions that handlers call, one per command. Each loads the immutable data of its order or
//! item, checks whether the request is admitted, and executes the command. Errors and cancel safety
//! are those of [`execute`].

use std::collections::BTreeSet;
use std::sync::Arc;

use time::OffsetDateTime;

use super::replay::LOOKUP_TIMEOUT;
use super::{direct, leader};
use crate::shop::command::Command;
use crate::shop::command::expire_orders::ExpireOrders;
use crate::shop::command::pay_order::PayOrder;
use crate::shop::command::place_order::PlaceOrder;
use crate::shop::command::restock::{Restock, RestockRequest};
use crate::shop::command::return_order::{ReturnKind, ReturnOrder};
use crate::shop::command::set_limit::{SetLimit, check_limit};
use crate::shop::command::state::{ShopState, StockSnapshot};
use crate::shop::command::top_up::TopUp;
use crate::shop::failure::{Execution, Failure, Rejection};
use crate::shop::model::{ExpiredOrders, Order, RequestedLine};
use crate::shop::query::{catalog, orders};
use crate::shop::store::accounts;
use crate::shop::{
    DEFAULT_PAYMENT_WINDOW, IdempotencyKey, OrderId, RequestOptions, Shop, Sku, UserId,
};

/// Places an order.
pub async fn place_order(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    key: IdempotencyKey,
    lines: &[RequestedLine],
) -> Result<Execution, Failure> {
    let command = PlaceOrder::new(user, key, lines, options.payment_window)?;
    let skus = command.reads().items;
    let single = command.single_line().map(|(sku, quantity)| (sku.clone(), quantity));
    let command = Arc::new(command);
    if let Some(replayed) = admit(shop, options, &skus, command.as_ref()).await? {
        return Ok(replayed);
    }
    if let Err(failure) = check_items_and_unpaid(shop, options, user, &skus).await {
        let replays = &shop.engine.replays;
        return replays.find_or(command.idempotency(), LOOKUP_TIMEOUT, failure).await;
    }
    let batched = options.batch_key(command.as_ref()).is_some();
    let Some((sku, quantity)) = single.filter(|_| batched) else {
        return execute(shop, options, command).await;
    };
    let cache = &shop.engine.sold_out;
    if let Some(executed) = cache.check((&sku, quantity), command.idempotency()).await? {
        return Ok(executed);
    }
    let result = execute(shop, options, command).await;
    if let Err(Failure::Rejected(Rejection::SoldOut { available, .. })) = &result {
        cache.record(&sku, *available);
    }
    result
}

/// Parses and responds like [`place_order`] but places nothing: the cost of the path alone.
pub fn check_order(
    user: UserId,
    key: IdempotencyKey,
    lines: &[RequestedLine],
) -> Result<Execution, Failure> {
    let command = PlaceOrder::new(user, key, lines, DEFAULT_PAYMENT_WINDOW)?;
    let mut state = ShopState::at(OffsetDateTime::now_utc());
    for sku in command.reads().items {
        let item = StockSnapshot { stock: i64::MAX / 2, ..StockSnapshot::default() };
        state.items.insert(sku, item);
    }
    Ok(Execution::now(command.decide(&mut state)?.response.stored()?))
}

/// Pays a pending order.
pub async fn pay_order(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    order: OrderId,
    key: IdempotencyKey,
) -> Result<Execution, Failure> {
    let order = own_order(shop, user, order).await?;
    let skus: Vec<Sku> = order.lines.iter().map(|line| line.sku.clone()).collect();
    let command = Arc::new(PayOrder::new(user, order, key));
    if let Some(replayed) = admit(shop, options, &skus, command.as_ref()).await? {
        return Ok(replayed);
    }
    if may_lose_updates(shop, options) {
        // Not in the payment's transaction: the row lock of the mark would serialize payments.
        accounts::mark_lab(shop, user).await?;
    }
    execute(shop, options, command).await
}

/// Cancels a pending order.
pub async fn cancel_order(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    order: OrderId,
    key: Option<IdempotencyKey>,
) -> Result<Execution, Failure> {
    return_order(shop, options, ReturnKind::Cancel, user, order, key).await
}

/// Refunds a paid order.
pub async fn refund_order(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    order: OrderId,
    key: Option<IdempotencyKey>,
) -> Result<Execution, Failure> {
    return_order(shop, options, ReturnKind::Refund, user, order, key).await
}

async fn return_order(
    shop: &Shop,
    options: &RequestOptions,
    kind: ReturnKind,
    user: UserId,
    order: OrderId,
    key: Option<IdempotencyKey>,
) -> Result<Execution, Failure> {
    let order = own_order(shop, user, order).await?;
    execute(shop, options, Arc::new(ReturnOrder::new(kind, user, order, key))).await
}

/// Changes an item's stock on behalf of an admin.
pub async fn restock(
    shop: &Shop,
    options: &RequestOptions,
    admin: UserId,
    sku: Sku,
    what: &RestockRequest,
    key: IdempotencyKey,
) -> Result<Execution, Failure> {
    let command = Arc::new(Restock::new(admin, sku.clone(), what, key)?);
    shop.engine.known_items.check(std::slice::from_ref(&sku)).await?;
    if let Some(replayed) = admit(shop, options, &[sku], command.as_ref()).await? {
        return Ok(replayed);
    }
    execute(shop, options, command).await
}

/// Adds money to the user's account.
pub async fn top_up(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    key: IdempotencyKey,
    amount_cents: i64,
) -> Result<Execution, Failure> {
    execute(shop, options, Arc::new(TopUp::new(user, amount_cents, key)?)).await
}

/// Sets or removes an item's limit per customer.
pub async fn set_limit(
    shop: &Shop,
    options: &RequestOptions,
    admin: UserId,
    sku: Sku,
    limit: Option<i64>,
    key: Option<IdempotencyKey>,
) -> Result<Execution, Failure> {
    check_limit(limit)?;
    let Some(item) = catalog::item(shop, &sku).await? else {
        return Err(Rejection::no_item(&sku).into());
    };
    execute(shop, options, Arc::new(SetLimit::new(admin, item, limit, key)?)).await
}

/// Expires the due orders among `orders`, all or none of them, and returns their ids. A rejection
/// means that a lock was not acquired.
pub async fn expire_orders(
    shop: &Shop,
    options: &RequestOptions,
    orders: Vec<(OrderId, Vec<(Sku, i64)>)>,
) -> Result<BTreeSet<OrderId>, Failure> {
    let executed = execute(shop, options, Arc::new(ExpireOrders::new(orders))).await?;
    Ok(executed.response.read::<ExpiredOrders>()?.orders)
}

async fn own_order(shop: &Shop, user: UserId, order: OrderId) -> Result<Order, Failure> {
    let found = orders::order(shop, user, order).await?;
    found.ok_or_else(|| Rejection::no_order(order).into())
}

/// Rejects an order of an unknown item, and one of a user with too many unpaid orders.
async fn check_items_and_unpaid(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    skus: &[Sku],
) -> Result<(), Failure> {
    shop.engine.known_items.check(skus).await?;
    let Some(max) = shop.max_unpaid_orders else { return Ok(()) };
    let window = options.payment_window.max(shop.payment_window);
    shop.engine.unpaid.admit(user, max, window).await
}

/// Rejects options that could lose sales or money, or keep units too long, except for lab items.
/// Admits unknown items, which are rejected later. Returns the stored response of a duplicate that
/// would be rejected.
async fn admit(
    shop: &Shop,
    options: &RequestOptions,
    skus: &[Sku],
    command: &dyn Command,
) -> Result<Option<Execution>, Failure> {
    let may_lose_updates = may_lose_updates(shop, options);
    if !may_lose_updates && options.payment_window <= shop.payment_window {
        return Ok(None);
    }
    let failure = match catalog::first_shop_item(shop, skus).await {
        Ok(None) => return Ok(None),
        Ok(Some(sku)) if may_lose_updates => Rejection::Forbidden(format!(
            "this is kept to lab items, and {sku} is the shop's own: under Holdfast-Lock: {} or with \
             a Holdfast-Ttl-Ms, beside others under {}, sales could be lost. The admin makes a lab \
             item with POST /api/lab/items",
            options.strategy.name, shop.strategy.name,
        ))
        .into(),
        Ok(Some(sku)) => Rejection::Forbidden(format!(
            "a Holdfast-Hold-Ms of more than {} is kept to lab items, and {sku} is the shop's own",
            shop.payment_window.as_millis()
        ))
        .into(),
        Err(error) => error.into(),
    };
    let replays = &shop.engine.replays;
    replays.find_or(command.idempotency(), LOOKUP_TIMEOUT, failure).await.map(Some)
}

/// Returns whether the changes may be wrong by design; then only lab items may be changed.
///
/// A strategy is correct among requests of the same strategy. Two different strategies are correct
/// together only if Postgres isolates both.
fn may_lose_updates(shop: &Shop, options: &RequestOptions) -> bool {
    !options.strategy.is_compatible_with(shop.strategy) || options.ttl.is_some()
}

/// Executes a command, at most once per idempotency key. After a [`Failure`] nothing changed,
/// unless the error states an unknown outcome.
///
/// # Cancel safety
/// Dropping the future before the command starts changes nothing. A started command completes, and
/// a retry with the same key returns its response.
async fn execute(
    shop: &Shop,
    options: &RequestOptions,
    command: Arc<dyn Command>,
) -> Result<Execution, Failure> {
    match options.batch_key(command.as_ref()) {
        Some(key) => leader::enqueue(shop, options, command, key).await,
        None => direct::execute(shop, options, command).await,
    }
}
