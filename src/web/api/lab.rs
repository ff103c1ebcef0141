//! The lab: throw-away items, orders that are not placed, held requests, and queues.

use std::ops::RangeInclusive;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::orders::{OrderRequest, add_trace};
use crate::jobs::order_expiry::{LAB_REQUEST_TIMEOUT, LabRequest};
use crate::lab::headers::TTL_RANGE_MS;
use crate::probe::Point;
use crate::shop::model::{Item, Order};
use crate::shop::store::items::{self, ItemKind};
use crate::shop::{Error, Sku, Strategy, engine};
use crate::web::middleware::auth::{AdminUser, SignedInUser};
use crate::web::middleware::body::Json;
use crate::web::middleware::request_options::{DefaultOptions, LabOptions, idempotency_key};
use crate::web::openapi::ErrorResponses;
use crate::web::problems::{Problem, ProblemType};
use crate::web::{AppState, HttpResult, command_response, stored_response};

/// Default price of a throw-away item.
const DEFAULT_PRICE_CENTS: i64 = 100;

/// A throw-away item.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLabItem {
    /// Units in stock: 0 to 10⁹.
    pub stock: i64,
    /// The price of one unit, in cents; 100 if absent.
    #[serde(default)]
    pub price_cents: Option<i64>,
    /// The most units one customer may have, 1 to 1,000; no limit if absent.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<i64>,
}

/// Creates a throw-away item, hidden from the shop, on which any strategy may be tried (admin).
#[utoipa::path(post, path = "/api/lab/items", tag = "lab", security(("session" = [])),
    request_body = NewLabItem, responses((status = 201, body = Item), ErrorResponses))]
pub async fn create_item(
    state: web::Data<AppState>,
    _: AdminUser,
    DefaultOptions(options): DefaultOptions,
    new: Json<NewLabItem>,
) -> HttpResult {
    let new = new.read()?;
    require_lab(&state)?;
    let sku = Sku::try_from(format!("lab-{}", Uuid::now_v7().simple()))
        .map_err(|error| Error::Bug(error.to_owned()))?;
    let item = Item {
        name: "A throw-away item of the lab".to_owned(),
        price_cents: new.price_cents.unwrap_or(DEFAULT_PRICE_CENTS),
        stock: new.stock,
        limit_per_user: new.limit_per_user,
        sku,
    };
    let id = options.request_id;
    Ok(stored_response(items::create(&state.shop, item, ItemKind::Lab, id).await?))
}

/// Checks an order and responds without placing it: measures the cost of the request path.
#[utoipa::path(post, path = "/api/lab/noop", tag = "lab", security(("session" = [])),
    params(("Idempotency-Key" = Option<String>, Header), ("token" = Option<String>, Query)),
    request_body = OrderRequest, responses((status = 201, body = Order), ErrorResponses))]
pub async fn noop(
    state: web::Data<AppState>,
    request: HttpRequest,
    user: SignedInUser,
    options: LabOptions,
    order: Json<OrderRequest>,
) -> HttpResult {
    let options = options.read()?;
    let order = order.read()?;
    require_lab(&state)?;
    let key = idempotency_key(&request)?;
    let checked = engine::check_order(user.caller.id, key, &order.lines)?;
    Ok(command_response(add_trace(checked, &options.probe)?))
}

/// A request that is held at a probe point.
#[derive(Debug, Serialize, ToSchema)]
pub struct HeldRequest {
    /// Its `X-Request-Id`.
    pub request_id: Uuid,
    /// The name of the probe point.
    pub point: &'static str,
    /// When the hold began, on the machine's monotonic clock, in microseconds.
    pub since_us: u64,
}

/// Lists the requests held at this replica (`Holdfast-Pause`) and their probe points (admin).
#[utoipa::path(get, path = "/api/lab/holds", tag = "lab", security(("session" = [])),
    responses((status = 200, body = [HeldRequest]), ErrorResponses))]
pub async fn holds(state: web::Data<AppState>, _: AdminUser) -> HttpResult {
    require_lab(&state)?;
    let held = state.board.paused().into_iter().map(|held| HeldRequest {
        request_id: held.request_id,
        point: held.point.name(),
        since_us: held.since_us,
    });
    Ok(HttpResponse::Ok().json(held.collect::<Vec<_>>()))
}

/// An instruction to a replica's order expiry worker: `rest_ms`, `pause`, or neither.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerInstruction {
    /// Time in which the worker does nothing, in milliseconds: 0 to 30,000.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 30_000)]
    pub rest_ms: Option<u64>,
    /// The probe point at which the worker is held the next time it has work.
    #[serde(default)]
    #[schema(example = "commit")]
    pub pause: Option<String>,
    /// With `pause`: the lease of the held work, in milliseconds, 10 to 60,000.
    #[serde(default)]
    #[schema(minimum = 10, maximum = 60_000)]
    pub ttl_ms: Option<u64>,
    /// With `pause`: the strategy of the held work, which must be safe beside the server's own.
    #[serde(default)]
    #[schema(example = "row-lock")]
    pub lock: Option<String>,
}

/// Instructs this replica's order expiry worker to rest, or to be held once (admin).
///
/// Replaces the previous instruction, and expires after at most 30 seconds.
#[utoipa::path(post, path = "/api/lab/worker", tag = "lab", security(("session" = [])),
    request_body = WorkerInstruction, responses((status = 204), ErrorResponses))]
pub async fn worker(
    state: web::Data<AppState>,
    _: AdminUser,
    instruction: Json<WorkerInstruction>,
) -> HttpResult {
    let instruction = instruction.read()?;
    require_lab(&state)?;
    state.unpaid.set_lab_request(parse_instruction(instruction, state.shop.strategy)?);
    Ok(HttpResponse::NoContent().finish())
}

fn parse_instruction(
    instruction: WorkerInstruction,
    own: &Strategy,
) -> Result<Option<LabRequest>, Problem> {
    let longest_ms = u64::try_from(LAB_REQUEST_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let number = |field, number: Option<u64>, range: RangeInclusive<u64>| match number {
        Some(number) if !range.contains(&number) => {
            let (least, most) = range.into_inner();
            Err(Problem::field(field, format!("a number, {least} to {most}")))
        }
        number => Ok(number.map(Duration::from_millis)),
    };
    let rest = number("rest_ms", instruction.rest_ms, 0..=longest_ms)?;
    let ttl = number("ttl_ms", instruction.ttl_ms, TTL_RANGE_MS)?;
    let strategy = match instruction.lock.as_deref() {
        None => None,
        Some(name) => {
            let beside = Strategy::named(name).filter(|strategy| strategy.is_compatible_with(own));
            let why =
                || Problem::field("lock", format!("a strategy that holds beside {}", own.name));
            Some(beside.ok_or_else(why)?)
        }
    };
    match (rest, instruction.pause) {
        (Some(_), Some(_)) => Err(Problem::field("pause", "not together with rest_ms")),
        (Some(rest), None) => Ok(Some(LabRequest::Rest(rest))),
        (None, Some(name)) => {
            let why = || Problem::field("pause", format!("one of {}", Point::names()));
            let at = Point::named(&name).ok_or_else(why)?;
            Ok(Some(LabRequest::Pause { at, ttl, strategy }))
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
#[utoipa::path(get, path = "/api/lab/queues", tag = "lab", security(("session" = [])),
    responses((status = 200, body = [QueueInfo]), ErrorResponses))]
pub async fn queues(state: web::Data<AppState>, _: AdminUser) -> HttpResult {
    require_lab(&state)?;
    let at = |ms: i64| OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok();
    let queues = state.shop.locks.queues().into_iter().map(|queue| QueueInfo {
        key: queue.key.to_string(),
        served_since: queue.served_since_ms.and_then(at),
        inside: queue.waiting,
        outside: queue.waiting_for_place,
    });
    Ok(HttpResponse::Ok().json(queues.collect::<Vec<_>>()))
}

/// Releases a held request (admin).
#[utoipa::path(post, path = "/api/lab/holds/{id}", tag = "lab", security(("session" = [])),
    params(("id" = String, Path)), responses((status = 204), ErrorResponses))]
pub async fn resume(state: web::Data<AppState>, _: AdminUser, id: web::Path<String>) -> HttpResult {
    require_lab(&state)?;
    match Uuid::parse_str(&id) {
        Ok(request) if state.board.resume(request, None) => Ok(HttpResponse::NoContent().finish()),
        _ => Err(Problem::not_found(format!("no request {id} is held here"))),
    }
}

pub(in crate::web) fn require_lab(state: &AppState) -> Result<(), Problem> {
    if state.lab { Ok(()) } else { Err(Problem::new(ProblemType::Forbidden, "the lab is off")) }
}
