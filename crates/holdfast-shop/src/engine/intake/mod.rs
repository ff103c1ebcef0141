//! The functions that handlers call, one per command. Each loads the immutable data of its order or
//! item, checks whether the request is admitted, and executes the command: in the queue of its key,
//! or directly. Errors and cancel safety are those of [`submit`].

pub mod known_items;
pub mod return_order;
pub mod sold_out;
pub mod unpaid;

use std::borrow::Cow;
use std::collections::BTreeSet;
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
use crate::engine::queue::QueueEntry;
use crate::engine::reply::Reply;
use crate::engine::{direct, leader};
use crate::failure::{Component, Error, Execution, Failure, Rejection};
use crate::model::{ItemKind, Order, RequestedLine};
use crate::probe::{Point, ProbedValue};
use crate::query::orders;
use crate::store::accounts::{LAB_CENTS, open_lab_account};
use crate::strategy::units;
use crate::{DEFAULT_PAYMENT_WINDOW, IdempotencyKey, OrderId, RequestContext, Shop, Sku, UserId};
use holdfast_base::messages::message;
use holdfast_base::metrics::define_metrics;
use known_items::KnownItem;

/// Upper bound of the units of an order of items in units: each is a row to lock and an entry to
/// write, in one statement, which has a timeout.
const MAX_UNITS_PER_ORDER: i64 = 1_000;
/// Orders in units that expire in one transaction: 5,000 units at most.
const MAX_EXPIRED_IN_UNITS: usize = 5;

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

async fn admit_order<'a>(
    shop: &Shop,
    context: &'a RequestContext,
    command: &PlaceOrder,
) -> Result<Cow<'a, RequestContext>, Failure> {
    let named = context.strategy;
    let context = context_for_items(shop, context, &command.reads().items).await?;
    if context.strategy.is_for_units() {
        if !named.is_for_units() {
            // Not silently: what it promises of a sale is less than what others promise.
            return Err(Rejection::Forbidden(message!("problem-sold-in-units")).into());
        }
        if command.units() > MAX_UNITS_PER_ORDER {
            let why = message!("problem-too-many-units", most = MAX_UNITS_PER_ORDER);
            return Err(Rejection::invalid("lines", why).into());
        }
    }
    if let Some(max) = shop.max_unpaid_orders {
        let window = context.payment_window.max(shop.payment_window);
        shop.engine.unpaid.admit(command.idempotency().user, max, window).await?;
    }
    Ok(context)
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
    let command = Arc::new(Restock::new(admin, sku.clone(), what, key)?);
    match context_for_whole_item(shop, context, &[sku]).await {
        Ok(context) => submit(shop, &context, command).await,
        Err(failure) => replay_or(shop, command.as_ref(), failure).await,
    }
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
    submit_edit(shop, context, sku, command).await
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
    submit_edit(shop, context, sku, command).await
}

async fn submit_edit(
    shop: &Shop,
    context: &RequestContext,
    sku: Sku,
    command: EditItem,
) -> Result<Execution, Failure> {
    let command = Arc::new(command);
    match context_for_whole_item(shop, context, &[sku]).await {
        Ok(context) => submit(shop, &context, command).await,
        Err(failure) => replay_or(shop, command.as_ref(), failure).await,
    }
}

/// Expires the due orders among `orders`, all or none of them, and returns their ids. A rejection
/// means that a lock was not acquired.
///
/// Orders of items in units, which are of no others, expire in several transactions: after a
/// failure behind the first one, those that have expired are returned, and the next call goes on.
pub async fn expire_orders(
    shop: &Shop,
    context: &RequestContext,
    orders: Vec<(OrderId, Vec<(Sku, i64)>)>,
) -> Result<BTreeSet<OrderId>, Failure> {
    let skus: BTreeSet<&Sku> = orders.iter().flat_map(|(_, units)| units).map(|u| &u.0).collect();
    let skus: Vec<Sku> = skus.into_iter().cloned().collect();
    let items = shop.engine.known_items.find(&skus).await?;
    if !items.iter().any(|item| item.in_units) {
        let executed = submit(shop, context, Arc::new(ExpireOrders::new(orders))).await?;
        return Ok(executed.response.read()?);
    }

    let context = context_in_units(context);
    let mut expired = BTreeSet::new();
    for orders in orders.chunks(MAX_EXPIRED_IN_UNITS) {
        let command = Arc::new(ExpireOrders::new(orders.to_vec()));
        match submit(shop, &context, command).await {
            Ok(executed) => expired.append(&mut executed.response.read()?),
            Err(failure) if expired.is_empty() => return Err(failure),
            Err(failure) => {
                tracing::debug!(%failure, "the other orders in units are still to expire");
                break;
            }
        }
    }
    Ok(expired)
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
/// and the shop, items of which only some are in units and, unless all are the lab's, options that
/// could lose sales or money, keep units too long, or are not the user's to set.
pub async fn context_for_items<'a>(
    shop: &Shop,
    context: &'a RequestContext,
    skus: &[Sku],
) -> Result<Cow<'a, RequestContext>, Failure> {
    let items = shop.engine.known_items.find(skus).await?;
    if items.iter().any(|item| item.in_units) {
        // The strategy locks units of all of its items, or of none.
        if let Some(whole) = first(skus, &items, |item| !item.in_units) {
            let why = message!("problem-partly-in-units", sku = whole);
            return Err(Rejection::invalid("lines", why).into());
        }
        return Ok(Cow::Owned(RequestContext { in_lab: true, ..context_in_units(context) }));
    }
    if context.strategy.is_for_units() {
        return Err(Rejection::Forbidden(message!("problem-not-in-units")).into());
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

/// Returns the context of a command on items in units: whatever locks elsewhere, their rows are
/// those of the units.
fn context_in_units(context: &RequestContext) -> RequestContext {
    RequestContext { strategy: &units::STRATEGY, ..context.clone() }
}

/// [`context_for_items`] of a command that changes an item's own row. Rejects items in units, whose
/// row nobody locks.
pub async fn context_for_whole_item<'a>(
    shop: &Shop,
    context: &'a RequestContext,
    skus: &[Sku],
) -> Result<Cow<'a, RequestContext>, Failure> {
    let context = context_for_items(shop, context, skus).await?;
    if context.strategy.is_for_units() {
        return Err(Rejection::Forbidden(message!("problem-units-kept")).into());
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
    // Before any lock: nobody waits for a request that is not executed.
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
    context.probe().at(Point::Wait, [ProbedValue::key(key.as_str())]).await;

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
        reply: Reply::Caller(reply),
    };
    if !leader::enqueue(shop, &key, entry) {
        let full = Error::Overloaded(format!("too many requests wait for {key}"));
        return duplicates.replay_or(request, full.into()).await;
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
