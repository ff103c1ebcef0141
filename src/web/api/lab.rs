//! The lab: throw-away items, orders that are not placed, paused requests, and queues.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::orders::OrderRequest;
use super::responses::{command_response, json, no_content, stored_response, with_location};
use crate::web::middleware::{
    DefaultContext, Json, KeyParameters, LabAdmin, SignedInUser, body, idempotency_key, lab_context,
};
use crate::web::problems::time_of_unix_ms;
use crate::web::{AppState, HttpResult, Problem, State};
use holdfast_base::messages::message;
use holdfast_shop::command::edit_item::deserialize_limit;
use holdfast_shop::jobs::order_expiry::{LAB_REQUEST_TIMEOUT, LabRequest};
use holdfast_shop::model::{Item, Order};
use holdfast_shop::probe::{PausedRequest, Point};
use holdfast_shop::store::items;
use holdfast_shop::strategy::pre_deduct::reconcile::{Reconciliation, reconcile as reconcile_item};
use holdfast_shop::strategy::units::create::create_in_units;
use holdfast_shop::{Strategy, UserId, engine};

const DEFAULT_PRICE_CENTS: i64 = 100;

/// A throw-away item.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLabItem {
    /// Units in stock: 0 to 10⁹.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub stock: i64,
    /// The price of one unit, in cents: 0 to 10⁹; 100 if absent.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub price_cents: Option<i64>,
    /// The most units one customer may have, 1 to 1,000; no limit if absent.
    #[serde(default, deserialize_with = "deserialize_limit")]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<i64>,
    /// True for a row per unit, which the strategy `units` needs: 1 to 100,000 of them, without a
    /// limit per customer. The number of units and the settings of such an item never change.
    #[serde(default)]
    pub in_units: bool,
    /// True for a stock that may fall below zero, without the constraint that keeps all other items
    /// from it: the strategy `check-then-decrement` then oversells. No effect on items in units.
    #[serde(default)]
    pub may_go_below_zero: bool,
}

/// Creates a throw-away item, hidden from the shop, on which any strategy may be tried (admin).
#[utoipa::path(post, path = "/api/lab/items", tag = "lab",
    responses((status = 201, body = Item)))]
pub(crate) async fn create_item(
    state: State,
    _: LabAdmin,
    context: DefaultContext,
    new: Json<NewLabItem>,
) -> HttpResult {
    let new = new.read()?;
    let price_cents = new.price_cents.unwrap_or(DEFAULT_PRICE_CENTS);
    let item = Item {
        limit_per_user: new.limit_per_user,
        ..Item::throw_away("A throw-away item of the lab", price_cents, new.stock)
    };
    let (id, address) = (context.request_id, format!("/api/items/{}", item.sku));

    let created = if new.in_units {
        create_in_units(&state.shop, item, id).await?
    } else if new.may_go_below_zero {
        items::create_without_constraint(&state.shop, item, id).await?
    } else {
        items::create_in_lab(&state.shop, item, id).await?
    };
    Ok(with_location(stored_response(created), address))
}

/// Reconciles an item of `pre-deduct` with its ledger, while no order is on its way (admin).
///
/// Settles its orders, cancels or refunds those for which there are no units, newest first, and
/// sets the counter in Redis to the stock. An order that is on its way meanwhile counts as lost.
#[utoipa::path(post, path = "/api/lab/items/{sku}/reconcile", tag = "lab",
    responses((status = 200, body = Reconciliation), (status = 404)))]
pub(crate) async fn reconcile(
    state: State,
    _: LabAdmin,
    context: DefaultContext,
    sku: Path<String>,
) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    json(reconcile_item(&state.shop, &context, &sku).await?)
}

/// Checks an order and responds without placing it: measures the cost of the request path.
#[utoipa::path(post, path = "/api/lab/noop", tag = "lab", params(KeyParameters),
    responses((status = 201, body = Order)))]
pub(crate) async fn noop(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
    order: Json<OrderRequest>,
) -> HttpResult {
    let context = lab_context(&request)?;
    let order = order.read()?;
    state.require_lab()?;
    let key = idempotency_key(&request)?;
    let checked = engine::noop_order(user.caller.id, key, &order.lines, order.expected_total_cents);
    command_response(checked, context.probe())
}

/// Lists the requests paused at this replica (`Holdfast-Pause`) and their probe points (admin).
#[utoipa::path(get, path = "/api/lab/paused", tag = "lab",
    responses((status = 200, body = [PausedRequest]), (status = 403)))]
pub(crate) async fn paused(state: State, _: LabAdmin) -> HttpResult {
    json(state.board.paused(None))
}

/// Resumes a paused request (admin).
#[utoipa::path(post, path = "/api/lab/paused/{id}", tag = "lab", responses((status = 204)))]
pub(crate) async fn resume(state: State, _: LabAdmin, id: Path<String>) -> HttpResult {
    resume_of(&state, None, &id)
}

/// Resumes a paused request of `owner`, or of any user for `None`.
pub(super) fn resume_of(state: &AppState, owner: Option<UserId>, id: &str) -> HttpResult {
    let paused = state.board.paused(owner.map(|owner| owner.0));
    let resumed = Uuid::parse_str(id).is_ok_and(|id| {
        let request = paused.iter().find(|request| request.request_id == id);
        request.is_some_and(|request| state.board.resume(id, Some(request.since_us)))
    });
    if resumed {
        return no_content();
    }
    Err(Problem::missing(message!("problem-not-paused", id)))
}

/// An instruction to a replica's order expiry worker: `rest_ms`, `pause`, or neither.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerInstruction {
    /// Time in which the worker does nothing, in milliseconds: 0 to 30,000.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 30_000)]
    pub rest_ms: Option<u64>,
    /// The probe point at which the worker is paused the next time it has work, for example
    /// `commit`; not together with `rest_ms`.
    #[serde(default)]
    pub pause: Option<String>,
    /// With `pause`: the strategy of the paused work, which must be safe beside the server's own.
    #[serde(default)]
    pub lock: Option<String>,
}

/// Instructs this replica's order expiry worker to rest, or to be paused once (admin).
///
/// Replaces the previous instruction, and expires after at most 30 seconds.
#[utoipa::path(post, path = "/api/lab/worker", tag = "lab", responses((status = 204)))]
pub(crate) async fn worker(
    state: State,
    _: LabAdmin,
    instruction: Json<WorkerInstruction>,
) -> HttpResult {
    let instruction = parse_instruction(instruction.read()?, state.shop.strategy)?;
    state.order_expiry.set_lab_request(instruction);
    no_content()
}

fn parse_instruction(
    WorkerInstruction { rest_ms, pause, lock }: WorkerInstruction,
    own: &Strategy,
) -> Result<Option<LabRequest>, Problem> {
    let longest_ms = u64::try_from(LAB_REQUEST_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let strategy = lock.map(|name| {
        let beside = Strategy::named(&name).filter(|strategy| strategy.is_safe_beside(own));
        let why = || message!("problem-not-beside", strategy = own.name);
        beside.ok_or_else(|| Problem::field("lock", why()))
    });
    let strategy = strategy.transpose()?;

    match (rest_ms, pause) {
        (Some(_), Some(_)) => Err(Problem::field("pause", message!("problem-pause-or-rest"))),
        (Some(rest_ms), None) if rest_ms > longest_ms => {
            let why = message!("problem-number", least = 0, most = longest_ms);
            Err(Problem::field("rest_ms", why))
        }
        (Some(rest_ms), None) => Ok(Some(LabRequest::Rest(Duration::from_millis(rest_ms)))),
        (None, Some(name)) => {
            let why = || message!("problem-one-of", names = Point::names());
            let at = Point::named(&name).ok_or_else(|| Problem::field("pause", why()))?;
            Ok(Some(LabRequest::Pause { at, strategy }))
        }
        (None, None) => Ok(None),
    }
}

/// A queue of the strategy `queue`.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueInfo {
    /// The lock key of the queue.
    #[schema(example = "{sku:lamp}")]
    pub key: String,
    /// When the current turn began; null between two turns.
    #[serde(with = "time::serde::rfc3339::option")]
    pub served_since: Option<OffsetDateTime>,
    /// Number of requests that wait for their turn.
    pub inside: usize,
    /// Number of requests that wait for a place in the queue.
    pub outside: usize,
}

/// Lists the queues of this replica (`Holdfast-Lock: queue`) and their lengths (admin).
#[utoipa::path(get, path = "/api/lab/queues", tag = "lab",
    responses((status = 200, body = [QueueInfo]), (status = 403)))]
pub(crate) async fn queues(state: State, _: LabAdmin) -> HttpResult {
    let queues = state.shop.locks.queues().into_iter().map(|queue| QueueInfo {
        key: queue.key.to_string(),
        served_since: queue.served_since_ms.and_then(time_of_unix_ms),
        inside: queue.waiting,
        outside: queue.waiting_for_place,
    });
    json(queues.collect::<Vec<_>>())
}
