//! Orders: token, place, read, pay, cancel, refund.

use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::lists::{Page, page};
use super::responses::{command_response, creation_response, json, with_location};
use crate::web::middleware::{
    Json, KeyParameters, ListParameters, OptionalJson, OptionalKeyParameters, SignedInUser, body,
    idempotency_key, lab_context, list_query, optional_idempotency_key,
};
use crate::web::{HttpResult, Problem, State};
use holdfast_base::messages::message;
use holdfast_shop::command::return_order::{Return, ReturnedBy};
use holdfast_shop::idempotency::RETENTION_HOURS;
use holdfast_shop::model::{Order, PaidOrder, RequestedLine, ReturnedOrder};
use holdfast_shop::query::{order_search, orders};
use holdfast_shop::sessions::Caller;
use holdfast_shop::{IdempotencyKey, OrderId, Shop, engine};

/// An order request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// 1 to 50 lines; quantities of the same item are added up.
    #[schema(min_items = 1, max_items = 50)]
    #[serde(deserialize_with = "body::objects")]
    pub lines: Vec<RequestedLine>,
    /// The total that the customer agreed to, in cents. A higher one is rejected with
    /// `price-changed`, a lower one is charged. Not part of the request's fingerprint.
    #[schema(minimum = 0, maximum = 50_000_000_000_000_i64)]
    pub expected_total_cents: Option<i64>,
}

/// An idempotency key for one order.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderToken {
    /// The value of the header `Idempotency-Key`.
    pub token: String,
    /// The end of the time for which the response is stored, if the token is used now.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Why an admin cancels or refunds an order.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnReason {
    /// For the admin log, and for nobody else: 1 to 200 characters on one line. An admin says it
    /// for the order of another user; a customer gives none.
    #[serde(default)]
    #[schema(
        nullable = false,
        example = "arrived broken",
        max_length = 200,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
    )]
    reason: Option<String>,
}

/// Creates an idempotency key for one order; `Location` is where to send the order. A client may
/// also use a UUID of its own.
#[utoipa::path(post, path = "/api/order-tokens", tag = "orders",
    responses((status = 201, body = OrderToken)))]
pub(crate) async fn mint_token(_: SignedInUser) -> HttpResult {
    let token = IdempotencyKey::generate().as_str().to_owned();
    let address = format!("/api/orders?token={token}");
    let expires_at = OffsetDateTime::now_utc() + time::Duration::hours(RETENTION_HOURS);
    let created = HttpResponse::Created().json(OrderToken { token, expires_at });
    Ok(with_location(created, address))
}

/// Places an order, once per idempotency key.
#[utoipa::path(post, path = "/api/orders", tag = "orders", params(KeyParameters),
    responses((status = 201, body = Order), (status = 404)))]
pub(crate) async fn place(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
    order: Json<OrderRequest>,
) -> HttpResult {
    let context = lab_context(&request)?;
    let OrderRequest { lines, expected_total_cents } = order.read()?;
    let key = idempotency_key(&request)?;
    let (shop, user) = (&state.shop, user.caller.id);

    let placed = engine::place_order(shop, &context, user, key, &lines, expected_total_cents).await;
    creation_response(placed, context.probe(), |order: PlacedOrder| {
        format!("/api/orders/{}", order.id)
    })
}

/// What the address of an order needs of it: to read the rest would cost each order more.
#[derive(Debug, Deserialize)]
struct PlacedOrder {
    id: OrderId,
}

/// Lists the caller's orders, newest first.
#[utoipa::path(get, path = "/api/orders", tag = "orders", params(ListParameters),
    responses((status = 200, body = Page<Order>)))]
pub(crate) async fn list(state: State, request: HttpRequest, user: SignedInUser) -> HttpResult {
    let (after, limit) = list_query(&request)?;
    let orders = orders::page(&state.shop, user.caller.id, after, true, limit + 1).await?.orders;
    page(&request, orders, limit, |order| order.id)
}

/// Returns an order of the caller.
#[utoipa::path(get, path = "/api/orders/{id}", tag = "orders",
    responses((status = 200, body = Order)))]
pub(crate) async fn read(state: State, user: SignedInUser, id: Path<String>) -> HttpResult {
    let id = body::parse_order_id(&id)?;
    let order = orders::order(&state.shop, user.caller.id, id).await?;
    json(order.ok_or_else(|| body::unknown_order(&id))?)
}

/// Pays a pending order, once per idempotency key.
#[utoipa::path(post, path = "/api/orders/{id}/pay", tag = "orders",
    params(KeyParameters),
    responses((status = 200, body = PaidOrder), (status = 402)))]
pub(crate) async fn pay(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
    id: Path<String>,
) -> HttpResult {
    let context = lab_context(&request)?;
    let id = body::parse_order_id(&id)?;
    let key = idempotency_key(&request)?;
    let paid = engine::pay_order(&state.shop, &context, user.caller.id, id, key).await;
    command_response(paid, context.probe())
}

/// The extracted parts of a request to cancel or refund an order, without the order's id, which
/// OpenAPI finds only among the arguments of the handler.
type ReturnRequest = (State, HttpRequest, SignedInUser, OptionalJson<ReturnReason>);

/// Cancels a pending order: its units return to stock. With an idempotency key, once per key of the
/// caller. An admin may cancel any order, and says why.
#[utoipa::path(post, path = "/api/orders/{id}/cancel", tag = "orders",
    params(OptionalKeyParameters), request_body = Option<ReturnReason>,
    responses((status = 200, body = ReturnedOrder)))]
pub(crate) async fn cancel(parts: ReturnRequest, id: Path<String>) -> HttpResult {
    execute(parts, &id, Return::Cancel).await
}

/// Refunds a paid order, all of it: the money returns to the account that paid, and the units to
/// stock. With an idempotency key, once per key of the caller. An admin may refund any order, and
/// says why; units that do not come back are a change of stock below zero.
#[utoipa::path(post, path = "/api/orders/{id}/refund", tag = "orders",
    params(OptionalKeyParameters), request_body = Option<ReturnReason>,
    responses((status = 200, body = ReturnedOrder)))]
pub(crate) async fn refund(parts: ReturnRequest, id: Path<String>) -> HttpResult {
    execute(parts, &id, Return::Refund).await
}

async fn execute(
    (state, request, user, reason): ReturnRequest,
    id: &str,
    how: Return,
) -> HttpResult {
    let context = lab_context(&request)?;
    let id = body::parse_order_id(id)?;
    let key = optional_idempotency_key(&request)?;
    let reason = reason.read()?.unwrap_or_default().reason;
    let by = returned_by(&state.shop, &user.caller, id, reason).await?;

    let returned = engine::return_order(&state.shop, &context, by, id, key, how).await;
    command_response(returned, context.probe())
}

/// Returns in which role the caller returns an order: as its customer, or as an admin, who says
/// why. For others than admins, another user's order does not exist.
async fn returned_by(
    shop: &Shop,
    caller: &Caller,
    id: OrderId,
    reason: Option<String>,
) -> Result<ReturnedBy, Problem> {
    let customer = ReturnedBy::Customer(caller.id);
    let is_own = async || Ok::<_, Problem>(orders::order(shop, caller.id, id).await?.is_some());

    match (caller.admin, reason) {
        (true, Some(reason)) => Ok(ReturnedBy::admin(caller.id, &reason)?),
        (false, None) => Ok(customer),
        (true, None) if is_own().await? => Ok(customer),
        (true, None) if order_search::owner(shop, id).await?.is_some() => {
            Err(Problem::field("reason", message!("problem-reason-missing")))
        }
        (false, Some(_)) if is_own().await? => {
            Err(Problem::field("reason", message!("problem-reason-of-admin")))
        }
        _ => Err(body::unknown_order(&id)),
    }
}
