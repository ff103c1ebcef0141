//! Items, their ledgers and their audits.

use actix_web::HttpRequest;
use actix_web::web::Path;
use serde::Deserialize;

use super::lists::{Page, page};
use super::responses::{command_response, creation_response, json};
use crate::web::middleware::{
    AdminUser, DefaultContext, Json, KeyParameters, ListParameters, OptionalKeyParameters, body,
    idempotency_key, lab_context, list_query, optional_idempotency_key,
};
use crate::web::{HttpResult, State};
use holdfast_shop::audit::ItemAudit;
use holdfast_shop::command::edit_item::{ItemFields, deserialize_limit};
use holdfast_shop::command::restock::RestockRequest;
use holdfast_shop::model::{Item, LedgerEntry};
use holdfast_shop::query::{catalog, ledger};
use holdfast_shop::store::items;
use holdfast_shop::{Sku, engine};

/// Lists the items of the shop, by sku.
#[utoipa::path(get, path = "/api/items", tag = "items", security(()), params(ListParameters<Sku>),
    responses((status = 200, body = Page<Item>)))]
pub(crate) async fn list(state: State, request: HttpRequest) -> HttpResult {
    let (after, limit) = list_query::<Sku>(&request)?;
    let items = catalog::items(&state.shop, after.as_ref(), limit + 1).await?;
    page(&request, items, limit, |item| item.sku.clone())
}

/// Returns one item.
#[utoipa::path(get, path = "/api/items/{sku}", tag = "items", security(()),
    responses((status = 200, body = Item)))]
pub(crate) async fn read(state: State, sku: Path<String>) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    json(catalog::item(&state.shop, &sku).await?.ok_or_else(|| body::unknown_item(&sku))?)
}

/// Creates an item (admin). Its opening stock is a ledger entry. With an idempotency key, once per
/// key.
#[utoipa::path(post, path = "/api/items", tag = "items",
    params(OptionalKeyParameters), responses((status = 201, body = Item), (status = 409)))]
pub(crate) async fn create(
    state: State,
    request: HttpRequest,
    admin: AdminUser,
    context: DefaultContext,
    new: Json<NewItem>,
) -> HttpResult {
    let NewItem { sku, name, name_zh, price_cents, stock, limit_per_user, description } =
        new.read()?;
    let item = Item::new(sku, name, price_cents, stock);
    let item = Item { name_zh, limit_per_user, description, ..item };
    let key = optional_idempotency_key(&request)?;
    let (admin, id) = (admin.0.caller.id, context.request_id);

    let created = items::create(&state.shop, admin, item, key, id).await;
    creation_response(created, context.probe(), |item: CreatedItem| {
        format!("/api/items/{}", item.sku)
    })
}

/// What the address of an item needs of it.
#[derive(Debug, Deserialize)]
struct CreatedItem {
    sku: Sku,
}

/// A new item.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    /// 1 to 64 characters of `a-z0-9-`; not `lab-` and 32 hexadecimal digits, as items of the lab.
    sku: Sku,
    /// 1 to 200 characters.
    #[schema(
        max_length = 200,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
    )]
    name: String,
    /// The name on Chinese pages, 1 to 200 characters; that of `name` if absent.
    #[serde(default)]
    #[schema(
        max_length = 200,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
    )]
    name_zh: Option<String>,
    /// In cents: 0 to 10⁹.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    price_cents: i64,
    /// Units: 0 to 10⁹.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    stock: i64,
    /// The most units one customer may have, 1 to 1,000; no limit if absent.
    #[serde(default, deserialize_with = "deserialize_limit")]
    #[schema(minimum = 1, maximum = 1000)]
    limit_per_user: Option<i64>,
    /// Plain text with line breaks (`\n`): at most 2,000 characters; empty if absent.
    #[serde(default)]
    #[schema(max_length = 2000, pattern = r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f]*$")]
    description: String,
}

/// Changes settings of an item (admin), once per idempotency key: only the fields that are sent. An
/// order that has not been written yet is placed by the new settings. Changes of the shop's items
/// are in the admin log.
#[utoipa::path(patch, path = "/api/items/{sku}", tag = "items",
    params(KeyParameters), responses((status = 200, body = Item)))]
pub(crate) async fn edit(
    state: State,
    request: HttpRequest,
    admin: AdminUser,
    context: DefaultContext,
    sku: Path<String>,
    set: Json<ItemFields>,
) -> HttpResult {
    let set = set.read()?;
    let sku = body::parse_sku(&sku)?;
    let key = idempotency_key(&request)?;
    let (admin, was) = (admin.0.caller.id, ItemFields::default());

    let edited = engine::edit_item(&state.shop, &context, admin, sku, set, was, key).await;
    command_response(edited, context.probe())
}

/// Adds or removes stock (admin), once per idempotency key; returns the ledger entry.
#[utoipa::path(post, path = "/api/items/{sku}/stock", tag = "items",
    params(KeyParameters), responses((status = 200, body = LedgerEntry)))]
pub(crate) async fn restock(
    state: State,
    request: HttpRequest,
    admin: AdminUser,
    sku: Path<String>,
    restock: Json<RestockRequest>,
) -> HttpResult {
    let context = lab_context(&request)?;
    let restock = restock.read()?;
    let sku = body::parse_sku(&sku)?;
    let key = idempotency_key(&request)?;
    let admin = admin.0.caller.id;

    let restocked = engine::restock(&state.shop, &context, admin, sku, &restock, key).await;
    command_response(restocked, context.probe())
}

/// Sets or removes an item's limit per customer (admin). Units in pending and paid orders count
/// towards the limit; the orders are not changed.
#[utoipa::path(put, path = "/api/items/{sku}/limit", tag = "items",
    responses((status = 200, body = Item), (status = 409), (status = 423)))]
pub(crate) async fn limit(
    state: State,
    admin: AdminUser,
    context: DefaultContext,
    sku: Path<String>,
    new: Json<NewLimit>,
) -> HttpResult {
    let limit = new.read()?.limit_per_user;
    let (sku, admin) = (body::parse_sku(&sku)?, admin.0.caller.id);
    let set = engine::set_limit(&state.shop, &context, admin, sku, limit, None).await;
    command_response(set, context.probe())
}

/// A limit per customer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    /// The most units one customer may have, 1 to 1,000; null removes the limit. Required, so that
    /// a forgotten field does not remove it.
    #[serde(deserialize_with = "deserialize_limit")]
    #[schema(required, minimum = 1, maximum = 1000)]
    limit_per_user: Option<i64>,
}

/// Lists an item's ledger, oldest entry first.
#[utoipa::path(get, path = "/api/items/{sku}/ledger", tag = "items", security(()),
    params(ListParameters<i64>), responses((status = 200, body = Page<LedgerEntry>)))]
pub(crate) async fn ledger(state: State, request: HttpRequest, sku: Path<String>) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let (after, limit) = list_query(&request)?;
    let entries = ledger::stock_entries(&state.shop, &sku, after.unwrap_or(0), limit + 1).await?;
    if entries.is_empty() && catalog::item(&state.shop, &sku).await?.is_none() {
        return Err(body::unknown_item(&sku));
    }
    page(&request, entries, limit, |entry| entry.seq)
}

/// Checks an item's ledger against its stock and its orders.
#[utoipa::path(get, path = "/api/items/{sku}/audit", tag = "items", security(()),
    responses((status = 200, body = ItemAudit)))]
pub(crate) async fn audit(state: State, sku: Path<String>) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let audit = state.shop.audits.item(sku.clone()).await?;
    json(audit.ok_or_else(|| body::unknown_item(&sku))?)
}
