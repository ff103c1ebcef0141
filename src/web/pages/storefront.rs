//! The shop page: items, prices and stock.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;

use super::basket_cookie::QuantityError;
use super::layout::Layout;
use super::respond::html;
use crate::shop::command::place_order::MAX_QUANTITY;
use crate::shop::model::Item;
use crate::shop::query::{catalog, ledger};
use crate::shop::{Cents, Sku};
use crate::web::middleware::Query;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, app_state};

const PAGE_LENGTH: i64 = 60;

#[derive(Debug, Template)]
#[template(path = "storefront.html")]
struct StorefrontPage {
    layout: Layout,
    cards: Vec<ItemCard>,
    more: Option<Sku>,
}

#[derive(Debug)]
struct ItemCard {
    item: Item,
    price: Cents,
    /// Upper bound of the quantity field.
    max_quantity: i64,
    /// Stock as a share of all units that were ever added, 0 to 100.
    percent: i64,
    /// The quantity that is wrong.
    wrong: Option<QuantityError>,
}

#[derive(Debug, Deserialize)]
pub struct ShopQuery {
    after: Option<String>,
}

pub async fn show(request: HttpRequest, query: Query<ShopQuery>) -> HttpResult {
    let after = query.read()?.after.and_then(|sku| Sku::try_from(sku).ok());
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
    let mut items = catalog::items(shop, after.as_ref(), PAGE_LENGTH + 1).await?;
    let more = cut_page(&mut items, PAGE_LENGTH, |item| item.sku.clone());
    let skus: Vec<Sku> = items.iter().map(|item| item.sku.clone()).collect();
    let supplied = ledger::units_added(shop, &skus).await?;
    let card = |item: Item| ItemCard {
        price: Cents(item.price_cents),
        max_quantity: item.limit_per_user.unwrap_or(MAX_QUANTITY),
        percent: percent(item.stock, supplied.get(item.sku.as_str()).copied().unwrap_or(0)),
        wrong: wrong.clone().filter(|wrong| wrong.sku == item.sku),
        item,
    };
    let cards = items.into_iter().map(card).collect();
    let layout = Layout { path: "/shop".to_owned(), ..Layout::of(request).await? };
    html(status, &StorefrontPage { layout, cards, more })
}

fn percent(stock: i64, supplied: i64) -> i64 {
    if supplied <= 0 { 0 } else { (stock * 100 / supplied).clamp(i64::from(stock > 0), 100) }
}
