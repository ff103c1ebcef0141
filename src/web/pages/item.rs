//! The shop page, and the page of an item: what it is, what it costs, how many are left, and *Buy*.

use std::collections::HashMap;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;

use super::format::FormatTime as _;
use super::kept_basket::QuantityError;
use super::layout::Layout;
use super::rejection::FormErrors;
use super::respond::html;
use crate::web::middleware::{Query, body};
use crate::web::paging::cut_page;
use crate::web::{HttpResult, app_state, see_other};
use holdfast_shop::command::place_order::MAX_QUANTITY;
use holdfast_shop::model::Item;
use holdfast_shop::query::catalog;
use holdfast_shop::query::next_return::{self, NextReturn};
use holdfast_shop::{Cents, Error, Shop, Sku};

const PAGE_LENGTH: i64 = 60;

#[derive(Debug, Template)]
#[template(path = "storefront.html")]
struct ShopPage {
    layout: Layout,
    items: Vec<Item>,
    more: Option<Sku>,
    /// The units of limited items that the customer has.
    purchased: HashMap<Sku, i64>,
}

/// Returns the units of an item that a customer has, if these are as many as a customer may have.
fn all_purchased(purchased: &HashMap<Sku, i64>, item: &Item) -> Option<i64> {
    let units = purchased.get(&item.sku).copied()?;
    item.limit_per_user.is_some_and(|limit| units >= limit).then_some(units)
}

#[derive(Debug, Deserialize)]
pub struct ShopQuery {
    after: Option<String>,
}

pub(crate) async fn list(request: HttpRequest, query: Query<ShopQuery>) -> HttpResult {
    let state = app_state(&request)?;
    let shop = &state.shop;
    let after = query.read()?.after.and_then(|sku| Sku::try_from(sku).ok());
    let reading = state.last_catalog.items(shop, after.as_ref(), PAGE_LENGTH + 1);
    let (mut items, as_of) = reading.await?;
    let more = cut_page(&mut items, PAGE_LENGTH, |item| item.sku.clone());
    let layout = Layout { path: "/shop".to_owned(), as_of, ..Layout::of(&request).await? };
    let purchased = purchased(shop, &layout, &items).await?;
    let items = items.into_iter().map(|item| layout.named(item)).collect();
    html(StatusCode::OK, &ShopPage { layout, items, more, purchased })
}

#[derive(Debug, Template)]
#[template(path = "item.html")]
struct ItemPage {
    layout: Layout,
    item: Item,
    quantity: String,
    errors: FormErrors,
    /// Of an item that is sold out.
    next_return: Option<NextReturn>,
    /// The units that the customer has, if these are as many as a customer may have.
    all_purchased: Option<i64>,
}

pub(crate) async fn show(request: HttpRequest, sku: Path<String>) -> HttpResult {
    page(&request, &body::parse_sku(&sku)?, None).await
}

/// Renders the page, optionally with an error beside the quantity. The lab's items have no page but
/// their ledger.
pub(super) async fn page(
    request: &HttpRequest,
    sku: &Sku,
    wrong: Option<QuantityError>,
) -> HttpResult {
    let state = app_state(request)?;
    let shop = &state.shop;
    let (item, as_of) = state.last_catalog.item(shop, sku).await?;
    let item = item.ok_or_else(|| body::unknown_item(sku))?;

    // The last catalogue has items of the shop only.
    let is_of_shop = as_of.is_some()
        || catalog::first_shop_item(shop, std::slice::from_ref(sku)).await?.is_some();
    if !is_of_shop {
        return Ok(see_other(&format!("/items/{sku}/ledger")));
    }

    let wrong = wrong.map(QuantityError::into_form);
    let (quantity, errors) = wrong.unwrap_or_else(|| ("1".to_owned(), FormErrors::default()));

    // While Postgres is away, it is not asked for this.
    let is_sold_out = item.stock == 0 && as_of.is_none();
    let sold_out: Vec<Sku> = is_sold_out.then(|| sku.clone()).into_iter().collect();
    let next_return = next_return::next_returns(shop, &sold_out).await.remove(sku);

    let layout = Layout { path: format!("/items/{sku}"), as_of, ..Layout::of(request).await? };
    let item = layout.named(item);
    let purchased = purchased(shop, &layout, std::slice::from_ref(&item)).await?;
    let all_purchased = all_purchased(&purchased, &item);
    let status = errors.status();
    html(status, &ItemPage { layout, item, quantity, errors, next_return, all_purchased })
}

/// Returns the units of limited items that the customer has, if signed in. While
/// Postgres is away it is not asked again, and nothing can be ordered.
async fn purchased(
    shop: &Shop,
    layout: &Layout,
    items: &[Item],
) -> Result<HashMap<Sku, i64>, Error> {
    match &layout.caller {
        Some(caller) if layout.as_of.is_none() => {
            catalog::purchased_by(shop, caller.id, items).await
        }
        _ => Ok(HashMap::new()),
    }
}
