//! The shop page: items, prices and stock.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::basket::QuantityError;
use super::html;
use super::layout::Layout;
use crate::shop::command::place_order::MAX_QUANTITY;
use crate::shop::query::{catalog, ledger};
use crate::shop::{Cents, Sku};
use crate::web::HttpResult;
use crate::web::middleware::auth::app_state;

const PAGE_LENGTH: usize = 60;

#[derive(Debug, Template)]
#[template(path = "storefront.html")]
struct StorefrontPage {
    layout: Layout,
    cards: Vec<ItemCard>,
    more: Option<Sku>,
}

#[derive(Debug)]
struct ItemCard {
    sku: Sku,
    name: String,
    price: Cents,
    stock: i64,
    limit: Option<i64>,
    /// Upper bound of the quantity field.
    max_quantity: i64,
    /// Stock as a share of all units that were ever added, 0 to 100.
    percent: i64,
    /// The value of the quantity field: 1, or the input that is wrong.
    input: String,
    wrong: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ShopQuery {
    after: Option<String>,
}

/// Shows the shop.
pub async fn show(request: HttpRequest, query: web::Query<ShopQuery>) -> HttpResult {
    let after = query.into_inner().after.and_then(|sku| Sku::try_from(sku).ok());
    page(&request, StatusCode::OK, after, None).await
}

/// Renders the page, optionally with an error beside the quantity of one item.
pub(super) async fn page(
    request: &HttpRequest,
    status: StatusCode,
    after: Option<Sku>,
    wrong: Option<QuantityError>,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let limit = i64::try_from(PAGE_LENGTH + 1).unwrap_or(i64::MAX);
    let mut items = catalog::items(shop, after.as_ref(), limit).await?;
    let has_more = items.len() > PAGE_LENGTH;
    items.truncate(PAGE_LENGTH);
    let skus: Vec<Sku> = items.iter().map(|item| item.sku.clone()).collect();
    let supplied = ledger::units_added(shop, &skus).await?;
    let more = items.last().filter(|_| has_more).map(|item| item.sku.clone());
    let cards = items
        .into_iter()
        .map(|item| {
            let wrong = wrong.as_ref().filter(|wrong| wrong.sku == item.sku);
            ItemCard {
                percent: percent(item.stock, supplied.get(item.sku.as_str()).copied().unwrap_or(0)),
                input: wrong.map_or_else(|| "1".to_owned(), |wrong| wrong.input.clone()),
                wrong: wrong.map(|wrong| wrong.why.clone()),
                sku: item.sku,
                name: item.name,
                price: Cents(item.price_cents),
                stock: item.stock,
                limit: item.limit_per_user,
                max_quantity: item.limit_per_user.unwrap_or(MAX_QUANTITY),
            }
        })
        .collect();
    let layout = Layout { path: "/".to_owned(), ..Layout::of(request).await? };
    html(status, &StorefrontPage { layout, cards, more })
}

fn percent(stock: i64, supplied: i64) -> i64 {
    if supplied <= 0 { 0 } else { (stock * 100 / supplied).clamp(i64::from(stock > 0), 100) }
}
