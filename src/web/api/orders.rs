//! Orders: token, place, read, pay, cancel, refund.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::probe::Probe;
use crate::shop::idempotency::RETENTION_HOURS;
use crate::shop::model::{Order, PaidOrder, RequestedLine, ReturnedOrder};
use crate::shop::query::orders;
use crate::shop::{
    Execution, Failure, IdempotencyKey, OrderId, RequestOptions, Shop, StoredResponse, UserId,
    engine,
};
use crate::web::middleware::auth::SignedInUser;
use crate::web::middleware::body::{self, Json, ListQuery};
use crate::web::middleware::request_options::{
    DefaultOptions, LabOptions, idempotency_key, optional_idempotency_key,
};
use crate::web::openapi::ErrorResponses;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult, command_response};

/// An order request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// 1 to 50 lines; quantities of the same item are added up.
    pub lines: Vec<RequestedLine>,
}

/// An idempotency key for one order.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OrderToken {
    /// The value of the header `Idempotency-Key`.
    pub token: String,
    /// The end of the time for which the response is stored, if the token is used now.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Creates an idempotency key for one order. A client may also use a UUID of its own.
#[utoipa::path(post, path = "/api/order-tokens", tag = "orders", security(("session" = [])),
    responses((status = 201, body = OrderToken), ErrorResponses))]
pub async fn mint_token(_: SignedInUser) -> HttpResult {
    Ok(HttpResponse::Created().json(OrderToken {
        token: IdempotencyKey::generate().as_str().to_owned(),
        expires_at: OffsetDateTime::now_utc() + time::Duration::hours(RETENTION_HOURS),
    }))
}

/// Places an order, once per idempotency key.
#[utoipa::path(post, path = "/api/orders", tag = "orders", security(("session" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "16 to 255 characters"),
           ("token" = Option<String>, Query, description = "the same, for tools that can't vary a header")),
    request_body = OrderRequest, responses((status = 201, body = Order), ErrorResponses))]
pub async fn place(
    state: web::Data<AppState>,
    request: HttpRequest,
    user: SignedInUser,
    options: LabOptions,
    order: Json<OrderRequest>,
) -> HttpResult {
    let options = options.read()?;
    let order = order.read()?;
    let key = idempotency_key(&request)?;
    let user = user.caller.id;
    let placed = engine::place_order(&state.shop, &options, user, key, &order.lines).await;
    traced_response(placed, &options.probe)
}

/// Lists the caller's orders, newest first.
#[utoipa::path(get, path = "/api/orders", tag = "orders", security(("session" = [])),
    params(("after" = Option<String>, Query, description = "older than this order"),
           ("limit" = Option<i64>, Query, description = "1 to 1,000")),
    responses((status = 200, body = [Order]), ErrorResponses))]
pub async fn list(
    state: web::Data<AppState>,
    user: SignedInUser,
    query: web::Query<ListQuery<OrderId>>,
) -> HttpResult {
    let limit = query.limit()?;
    Ok(HttpResponse::Ok().json(
        orders::orders(&state.shop, user.caller.id, query.after, orders::LabOrders::With, limit)
            .await?,
    ))
}

/// Returns an order of the caller.
#[utoipa::path(get, path = "/api/orders/{id}", tag = "orders", security(("session" = [])),
    params(("id" = String, Path)), responses((status = 200, body = Order), ErrorResponses))]
pub async fn read(
    state: web::Data<AppState>,
    user: SignedInUser,
    id: web::Path<String>,
) -> HttpResult {
    let id = body::parse_order_id(&id)?;
    match orders::order(&state.shop, user.caller.id, id).await? {
        Some(order) => Ok(HttpResponse::Ok().json(order)),
        None => Err(Problem::not_found(format!("you have no order {id}"))),
    }
}

/// Pays a pending order, once per idempotency key.
#[utoipa::path(post, path = "/api/orders/{id}/pay", tag = "orders", security(("session" = [])),
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = PaidOrder), ErrorResponses))]
pub async fn pay(
    state: web::Data<AppState>,
    request: HttpRequest,
    user: SignedInUser,
    options: LabOptions,
    id: web::Path<String>,
) -> HttpResult {
    let options = options.read()?;
    let id = body::parse_order_id(&id)?;
    let key = idempotency_key(&request)?;
    let paid = engine::pay_order(&state.shop, &options, user.caller.id, id, key).await;
    traced_response(paid, &options.probe)
}

/// Cancels a pending order: its units return to stock. With an idempotency key, once per key.
#[utoipa::path(post, path = "/api/orders/{id}/cancel", tag = "orders", security(("session" = [])),
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header),
    ("token" = Option<String>, Query)), responses((status = 200, body = ReturnedOrder), ErrorResponses))]
pub async fn cancel(parts: ReturnRequest) -> HttpResult {
    return_units(parts, engine::cancel_order).await
}

/// Refunds a paid order: the money returns to the account, and the units to stock. With an
/// idempotency key, once per key.
#[utoipa::path(post, path = "/api/orders/{id}/refund", tag = "orders", security(("session" = [])),
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header),
    ("token" = Option<String>, Query)), responses((status = 200, body = ReturnedOrder), ErrorResponses))]
pub async fn refund(parts: ReturnRequest) -> HttpResult {
    return_units(parts, engine::refund_order).await
}

/// The extracted parts of a request to cancel or refund an order.
type ReturnRequest =
    (web::Data<AppState>, HttpRequest, SignedInUser, DefaultOptions, web::Path<String>);

async fn return_units(
    (state, request, user, DefaultOptions(options), id): ReturnRequest,
    undo: impl AsyncFn(
        &Shop,
        &RequestOptions,
        UserId,
        OrderId,
        Option<IdempotencyKey>,
    ) -> Result<Execution, Failure>,
) -> HttpResult {
    let id = body::parse_order_id(&id)?;
    let key = optional_idempotency_key(&request)?;
    Ok(command_response(undo(&state.shop, &options, user.caller.id, id, key).await?))
}

/// Returns the response or the problem, with the trace if one was requested.
pub(super) fn traced_response(result: Result<Execution, Failure>, probe: &Probe) -> HttpResult {
    let executed = result.map_err(Problem::from).and_then(|executed| add_trace(executed, probe));
    executed.map(command_response).map_err(|problem| match probe.trace() {
        Some(trace) => problem.with("trace", serde_json::json!(trace)),
        None => problem,
    })
}

/// Adds the trace to the response of a command that was executed now. The trace is not stored, so a
/// replay has none.
pub(super) fn add_trace(executed: Execution, probe: &Probe) -> Result<Execution, Problem> {
    match probe.trace() {
        Some(trace) if !executed.replayed => {
            let mut body: serde_json::Value = executed.response.read()?;
            body["trace"] = serde_json::json!(trace);
            let response = StoredResponse::json(executed.response.status, &body)?;
            Ok(Execution { response, ..executed })
        }
        _ => Ok(executed),
    }
}
