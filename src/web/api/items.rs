//! Items, their ledgers and their audits.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

use super::orders::traced_response;
use crate::shop::audit::{self, ItemAudit};
use crate::shop::command::restock::RestockRequest;
use crate::shop::model::{Item, LedgerEntry};
use crate::shop::query::{catalog, ledger};
use crate::shop::store::items::{self, ItemKind};
use crate::shop::{Sku, engine};
use crate::web::middleware::auth::AdminUser;
use crate::web::middleware::body::{self, Json, ListQuery};
use crate::web::middleware::request_options::{DefaultOptions, LabOptions, idempotency_key};
use crate::web::openapi::ErrorResponses;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult, command_response, stored_response};

/// Lists the items of the shop, by sku.
#[utoipa::path(get, path = "/api/items", tag = "items",
    params(("after" = Option<String>, Query, description = "go on behind this sku"),
           ("limit" = Option<i64>, Query, description = "1 to 1,000")),
    responses((status = 200, body = [Item]), ErrorResponses))]
pub async fn list(state: web::Data<AppState>, query: web::Query<ListQuery<String>>) -> HttpResult {
    let limit = query.limit()?;
    let after = query.after.clone().map(Sku::try_from).transpose();
    let after = after.map_err(|error| Problem::field("after", error))?;
    Ok(HttpResponse::Ok().json(catalog::items(&state.shop, after.as_ref(), limit).await?))
}

/// Returns one item.
#[utoipa::path(get, path = "/api/items/{sku}", tag = "items", params(("sku" = String, Path)),
    responses((status = 200, body = Item), ErrorResponses))]
pub async fn read(state: web::Data<AppState>, sku: web::Path<String>) -> HttpResult {
    let sku = body::parse_sku(sku.into_inner())?;
    match catalog::item(&state.shop, &sku).await? {
        Some(item) => Ok(HttpResponse::Ok().json(item)),
        None => Err(unknown(&sku)),
    }
}

/// Creates an item (admin). Its opening stock is a ledger entry.
#[utoipa::path(post, path = "/api/items", tag = "items", request_body = NewItem,
    security(("session" = [])), responses((status = 201, body = Item), ErrorResponses))]
pub async fn create(
    state: web::Data<AppState>,
    _: AdminUser,
    DefaultOptions(options): DefaultOptions,
    new: Json<NewItem>,
) -> HttpResult {
    let NewItem { sku, name, price_cents, stock, limit_per_user } = new.read()?;
    let item = Item { sku, name, price_cents, stock, limit_per_user };
    let response = items::create(&state.shop, item, ItemKind::Shop, options.request_id).await?;
    Ok(stored_response(response))
}

/// A new item.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    /// 1 to 64 characters of `a-z0-9-`.
    sku: Sku,
    /// 1 to 200 characters.
    name: String,
    /// 0 to 10⁹.
    price_cents: i64,
    /// 0 to 10⁹.
    stock: i64,
    /// The most units one customer may have, 1 to 1,000; no limit if absent.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    limit_per_user: Option<i64>,
}

/// Adds or removes stock (admin), once per idempotency key; returns the ledger entry.
#[utoipa::path(post, path = "/api/items/{sku}/stock", tag = "items",
    params(("sku" = String, Path), ("Idempotency-Key" = Option<String>, Header),
           ("token" = Option<String>, Query)),
    request_body = RestockRequest, security(("session" = [])), responses((status = 200, body = LedgerEntry), ErrorResponses))]
pub async fn restock(
    state: web::Data<AppState>,
    request: HttpRequest,
    admin: AdminUser,
    options: LabOptions,
    sku: web::Path<String>,
    what: Json<RestockRequest>,
) -> HttpResult {
    let options = options.read()?;
    let what = what.read()?;
    let sku = body::parse_sku(sku.into_inner())?;
    let key = idempotency_key(&request)?;
    let admin = admin.0.caller.id;
    let restocked = engine::restock(&state.shop, &options, admin, sku, &what, key).await;
    traced_response(restocked, &options.probe)
}

/// Sets or removes an item's limit per customer (admin). Units in pending and paid orders count
/// towards the limit; the orders are not changed.
#[utoipa::path(put, path = "/api/items/{sku}/limit", tag = "items", params(("sku" = String, Path)),
    request_body = NewLimit, security(("session" = [])),
    responses((status = 200, body = Item), ErrorResponses))]
pub async fn limit(
    state: web::Data<AppState>,
    admin: AdminUser,
    DefaultOptions(options): DefaultOptions,
    sku: web::Path<String>,
    new: Json<NewLimit>,
) -> HttpResult {
    let new = new.read()?;
    let sku = body::parse_sku(sku.into_inner())?;
    let (admin, limit) = (admin.0.caller.id, new.limit_per_user);
    Ok(command_response(engine::set_limit(&state.shop, &options, admin, sku, limit, None).await?))
}

/// A limit per customer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    /// The most units one customer may have, 1 to 1,000; null removes the limit. Required, so that
    /// a forgotten field does not remove it.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required, minimum = 1, maximum = 1000)]
    limit_per_user: Option<i64>,
}

/// Lists an item's ledger, oldest entry first.
#[utoipa::path(get, path = "/api/items/{sku}/ledger", tag = "items",
    params(("sku" = String, Path),
           ("after" = Option<i64>, Query, description = "go on behind this seq"),
           ("limit" = Option<i64>, Query, description = "1 to 1,000")),
    responses((status = 200, body = [LedgerEntry]), ErrorResponses))]
pub async fn ledger(
    state: web::Data<AppState>,
    sku: web::Path<String>,
    query: web::Query<ListQuery<i64>>,
) -> HttpResult {
    let sku = body::parse_sku(sku.into_inner())?;
    let limit = query.limit()?;
    let entries = ledger::stock_entries(&state.shop, &sku, query.after.unwrap_or(0), limit).await?;
    if entries.is_empty() && catalog::item(&state.shop, &sku).await?.is_none() {
        return Err(unknown(&sku));
    }
    Ok(HttpResponse::Ok().json(entries))
}

/// Checks an item's ledger against its stock and its orders.
#[utoipa::path(get, path = "/api/items/{sku}/audit", tag = "items", params(("sku" = String, Path)),
    responses((status = 200, body = ItemAudit), ErrorResponses))]
pub async fn audit(state: web::Data<AppState>, sku: web::Path<String>) -> HttpResult {
    let sku = body::parse_sku(sku.into_inner())?;
    match audit::check_item(&state.shop.pool, &sku).await? {
        Some(audit) => Ok(HttpResponse::Ok().json(audit)),
        None => Err(unknown(&sku)),
    }
}

fn unknown(sku: &Sku) -> Problem {
    Problem::not_found(format!("there is no item {sku}"))
}
