//! What only admins read: all items of the shop, and the log of their changes.

use actix_web::HttpRequest;

use super::lists::{Page, page};
use crate::web::middleware::{AdminUser, ListParameters, list_query};
use crate::web::{HttpResult, State};
use holdfast_shop::Sku;
use holdfast_shop::model::{Item, LoggedChange};
use holdfast_shop::query::{admin_log, catalog};

/// Lists all items of the shop by sku, also hidden ones (admin).
#[utoipa::path(get, path = "/api/admin/items", tag = "admin", params(ListParameters<Sku>),
    responses((status = 200, body = Page<Item>), (status = 403)))]
pub(crate) async fn items(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let (after, limit) = list_query::<Sku>(&request)?;
    let items = catalog::all_items(&state.shop, "", after.as_ref(), limit + 1).await?;
    page(&request, items, limit, |item| item.sku.clone())
}

/// Lists what admins changed of items, orders and users, newest first (admin). Stock and money are
/// in their ledgers.
#[utoipa::path(get, path = "/api/admin/log", tag = "admin", params(ListParameters<i64>),
    responses((status = 200, body = Page<LoggedChange>), (status = 403)))]
pub(crate) async fn log(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let (after, limit) = list_query::<i64>(&request)?;
    let changes = admin_log::changes(&state.shop, None, after, limit + 1).await?;
    page(&request, changes, limit, |change| change.seq)
}
