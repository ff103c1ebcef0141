//! The functions that handlers call, one per command. Each loads the immutable data of its order or
//! item, checks whether the request is admitted, and executes the command: in the queue of its key,
//! or directly. Errors and cancel safety are those of [`submit`].

pub mod admission;
pub mod known_items;
pub mod return_order;
pub mod sold_out;
pub mod unpaid;

use std::collections::BTreeSet;
use std::iter::once_with;
use std::sync::Arc;

use holdfast_lock::LockKey;
use time::OffsetDateTime;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{Span, debug_span};

use crate::command::Command;
use crate::command::edit_item::{EditItem, ItemFields};
use crate::command::expire_orders::ExpireOrders;
use crate::command::pay_order::PayOrder;
use crate::command::place_order::PlaceOrder;
use crate::command::restock::{Restock, RestockRequest};
use crate::command::state::{ShopState, StockSnapshot};
use crate::command::top_up::TopUp;
use crate::engine::command_queue::QueueEntry;
use crate::engine::reply::ReplyRoute;
use crate::engine::{direct, leader};
use crate::failure::{Component, Error, Execution, Failure, Rejection};
use crate::model::RequestedLine;
use crate::probe::{Point, ProbedValue};
use crate::strategy::data_path::OwnItems;
use crate::{DEFAULT_PAYMENT_WINDOW, IdempotencyKey, OrderId, RequestContext, Shop, Sku, UserId};
use admission::{admit_order, context_for_items, context_for_whole_item, lab_account, own_order};
use holdfast_base::metrics::define_metrics;

define_metrics! {
    IDEMPOTENCY_REPLAYS: "holdfast_idempotency_replays_total", Counter [] &[],
        "Stored responses that were found for a repeated idempotency key";
}

pub async fn place_order(
    shop: &Shop,
    context: &RequestContext,
    user: UserId,
    key: IdempotencyKey,
    lines: &[RequestedLine],
    expected_total_cents: Option<i64>,
) -> Result<Execution, Failure> {
    let window = context.payment_window;
    let command = Arc::new(PlaceOrder::new(user, key, lines, expected_total_cents, window)?);
    let context = match admit_order(shop, context, &command).await {
        Ok(context) => context,
        // An earlier request with this key may have placed it, when it was still admitted.
        Err(failure) => return replay_or(shop, command.as_ref(), failure).await,
    };

    let batch_key = context.batch_key(command.as_ref());
    let (Some(queue_key), Some((sku, quantity))) = (batch_key, command.single_line()) else {
        return submit(shop, &context, command).await;
    };

    // A sold-out item attracts the most requests: they are rejected without its queue and its lock.
    let cache = &shop.engine.sold_out;
    if let Some(executed) = cache.check((sku, quantity), command.idempotency()).await? {
        return Ok(executed);
    }

    let result = submit_by(shop, &context, command.clone(), Some(queue_key)).await;
    if let Err(Failure::Rejected(Rejection::SoldOut { available, .. })) = &result {
        cache.record(sku, *available);
    }
    result
}

/// Parses and responds like [`place_order`] but places nothing: the cost of the path alone.
pub fn noop_order(
    user: UserId,
    key: IdempotencyKey,
    lines: &[RequestedLine],
    expected_total_cents: Option<i64>,
) -> Result<Execution, Failure> {
    let window = DEFAULT_PAYMENT_WINDOW;
    let command = PlaceOrder::new(user, key, lines, expected_total_cents, window)?;

    let mut state = ShopState::at(OffsetDateTime::now_utc());
    for sku in command.reads().items {
        let item = StockSnapshot { stock: i64::MAX / 2, ..StockSnapshot::default() };
        state.items.insert(sku, item);
    }

    Ok(Execution::now(command.decide(&mut state)?.stored_response()?))
}

pub async fn pay_order(
    shop: &Shop,
    context: &RequestContext,
    user: UserId,
    order: OrderId,
    key: IdempotencyKey,
) -> Result<Execution, Failure> {
    let order = own_order(shop, user, order).await?;
    let strategy = context.strategy;
    let context = context_for_items(shop, context, &order.skus()).await;
    let account = match &context {
        Ok(context) if context.in_lab => lab_account(shop, user).await?,
        // Of a request that is not admitted, only the key is looked up.
        _ => user,
    };

    let command = Arc::new(PayOrder::new(user, account, order, key));
    match context {
        Ok(context) => {
            // It changes no unit, and the account as the other payments do.
            let context = RequestContext { strategy, ..context.into_owned() };
            submit(shop, &context, command).await
        }
        Err(failure) => replay_or(shop, command.as_ref(), failure).await,
    }
}

pub async fn restock(
    shop: &Shop,
    context: &RequestContext,
    admin: UserId,
    sku: Sku,
    what: &RestockRequest,
    key: IdempotencyKey,
) -> Result<Execution, Failure> {
    let command = Restock::new(admin, sku.clone(), what, key)?;
    submit_for_item(shop, context, sku, Arc::new(command)).await
}

pub async fn top_up(
    shop: &Shop,
    context: &RequestContext,
    user: UserId,
    key: IdempotencyKey,
    amount_cents: i64,
) -> Result<Execution, Failure> {
    submit(shop, context, Arc::new(TopUp::new(user, amount_cents, key)?)).await
}

/// Changes the settings in `set`, unless one of them is no longer as it `was` when the admin saw
/// it.
pub async fn edit_item(
    shop: &Shop,
    context: &RequestContext,
    admin: UserId,
    sku: Sku,
    set: ItemFields,
    was: ItemFields,
    key: IdempotencyKey,
) -> Result<Execution, Failure> {
    let command = EditItem::new(admin, sku.clone(), set, was, key)?;
    submit_for_item(shop, context, sku, Arc::new(command)).await
}

pub async fn set_limit(
    shop: &Shop,
    context: &RequestContext,
    admin: UserId,
    sku: Sku,
    limit: Option<i64>,
    key: Option<IdempotencyKey>,
) -> Result<Execution, Failure> {
    let command = EditItem::limit(admin, sku.clone(), limit, key)?;
    submit_for_item(shop, context, sku, Arc::new(command)).await
}

async fn submit_for_item(
    shop: &Shop,
    context: &RequestContext,
    sku: Sku,
    command: Arc<dyn Command>,
) -> Result<Execution, Failure> {
    match context_for_whole_item(shop, context, &[sku]).await {
        Ok(context) => submit(shop, &context, command).await,
        Err(failure) => replay_or(shop, command.as_ref(), failure).await,
    }
}

/// Expires the due orders among `orders`, all or none of them, and returns their ids. A rejection
/// means that a lock was not acquired.
///
/// Orders of items that are made for one strategy (no other items are in them) may expire in
/// several transactions: after a failure behind the first one, those that have expired are
/// returned, and the next call goes on.
pub async fn expire_orders(
    shop: &Shop,
    context: &RequestContext,
    orders: Vec<(OrderId, Vec<(Sku, i64)>)>,
) -> Result<BTreeSet<OrderId>, Failure> {
    let skus: BTreeSet<&Sku> = orders.iter().flat_map(|(_, units)| units).map(|u| &u.0).collect();
    let skus: Vec<Sku> = skus.into_iter().cloned().collect();
    let items = shop.engine.known_items.find(&skus).await?;
    let Some(strategy) = items.iter().find_map(|item| item.sold_under) else {
        let executed = submit(shop, context, Arc::new(ExpireOrders::new(orders))).await?;
        return Ok(executed.response.read()?);
    };

    let context = RequestContext { strategy, ..context.clone() };
    let own = shop.engine.data_paths.own_items(strategy);
    let at_once = own.map_or(orders.len(), OwnItems::max_expired);
    let mut expired = BTreeSet::new();
    for orders in orders.chunks(at_once) {
        let command = Arc::new(ExpireOrders::new(orders.to_vec()));
        match submit(shop, &context, command).await {
            Ok(executed) => expired.append(&mut executed.response.read()?),
            Err(failure) if expired.is_empty() => return Err(failure),
            Err(failure) => {
                tracing::debug!(%failure, "the other orders are still to expire");
                break;
            }
        }
    }
    Ok(expired)
}

async fn replay_or(
    shop: &Shop,
    command: &dyn Command,
    failure: Failure,
) -> Result<Execution, Failure> {
    counted(shop.engine.duplicates.replay_or(command.idempotency(), failure).await)
}

/// Executes a command, at most once per idempotency key. After a [`Failure`] nothing changed,
/// unless the error states an unknown outcome.
///
/// # Cancel safety
/// Dropping the future before the command starts changes nothing. A started command completes, and
/// a retry with the same key returns its response.
pub async fn submit(
    shop: &Shop,
    context: &RequestContext,
    command: Arc<dyn Command>,
) -> Result<Execution, Failure> {
    let key = context.batch_key(command.as_ref());
    submit_by(shop, context, command, key).await
}

/// [`submit`], by the leader of the queue of `batch_key` if there is one.
async fn submit_by(
    shop: &Shop,
    context: &RequestContext,
    command: Arc<dyn Command>,
    batch_key: Option<LockKey>,
) -> Result<Execution, Failure> {
    // Before any lock: no request waits for one that is not executed.
    if context.probe().is_refused() {
        return replay_or(shop, command.as_ref(), Rejection::TooManyPauses.into()).await;
    }

    counted(match batch_key {
        Some(key) => wait_for_batch(shop, context, command, key).await,
        None => direct::run(shop, context, command).await,
    })
}

/// Waits in the queue of `key` for the response of its leader. A caller that goes away before the
/// batch begins leaves a dead entry, which is not executed.
async fn wait_for_batch(
    shop: &Shop,
    context: &RequestContext,
    command: Arc<dyn Command>,
    key: LockKey,
) -> Result<Execution, Failure> {
    let duplicates = &shop.engine.duplicates;
    let request = command.idempotency();
    // In this process first: a duplicate here costs no round trip and no place in the queue.
    let in_flight = match duplicates.admit(request) {
        Ok(in_flight) => in_flight,
        Err(rejection) => return duplicates.replay_or(request, rejection.into()).await,
    };
    context.probe().at(Point::Wait, once_with(|| ProbedValue::key(key.as_str()))).await;

    let (reply, response) = oneshot::channel();
    let entry = QueueEntry {
        command: command.clone(),
        context: context.clone(),
        joined_at: Instant::now(),
        key_lock_requested: false,
        looked_up: false,
        stays_here: false,
        in_flight,
        request: Span::current(),
        stage: debug_span!("wait"),
        reply: ReplyRoute::Caller(reply),
    };
    if !leader::enqueue(shop, &key, entry) {
        let full = Error::Overloaded(format!("too many requests wait for {key}"));
        return duplicates.replay_at_once_or(request, full.into()).await;
    }

    // No response: the leader's task has panicked, perhaps after its write was sent.
    response.await.unwrap_or_else(|_| Err(Error::task_ended(Component::BatchTask).into()))
}

/// Counts a response that was stored earlier.
fn counted(executed: Result<Execution, Failure>) -> Result<Execution, Failure> {
    if matches!(executed, Ok(Execution { replayed: true, .. })) {
        metrics::counter!(IDEMPOTENCY_REPLAYS).increment(1);
    }
    executed
}
