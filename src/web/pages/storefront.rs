//! The shop page: items, prices and stock.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;

use super::format::FormatMoney as _;
use super::layout::Layout;
use super::respond::html;
use crate::shop::model::Item;
use crate::shop::query::catalog;
use crate::shop::{Cents, Sku};
use crate::web::middleware::Query;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, app_state};

const PAGE_LENGTH: i64 = 60;

#[derive(Debug, Template)]
#[template(path = "storefront.html")]
struct StorefrontPage {
    layout: Layout,
    items: Vec<Item>,
    more: Option<Sku>,
}

impl StorefrontPage {
    fn price(&self, item: &Item) -> Cents {
        Cents(item.price_cents)
    }
}

#[derive(Debug, Deserialize)]
pub struct ShopQuery {
    after: Option<String>,
}

pub async fn show(request: HttpRequest, query: Query<ShopQuery>) -> HttpResult {
    let shop = &app_state(&request)?.shop;
    let after = query.read()?.after.and_then(|sku| Sku::try_from(sku).ok());
    let mut items = catalog::items(shop, after.as_ref(), PAGE_LENGTH + 1).await?;
    let more = cut_page(&mut items, PAGE_LENGTH, |item| item.sku.clone());
    let layout = Layout { path: "/shop".to_owned(), ..Layout::of(&request).await? };
    let items = items.into_iter().map(|item| layout.named(item)).collect();
    html(StatusCode::OK, &StorefrontPage { layout, items, more })
}
