//! The basket: its lines, the total, and the balance after paying.

use std::collections::{BTreeMap, HashMap};

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::basket_cookie::{Basket, quantity_rule};
use super::format::format_duration;
use super::layout::Layout;
use super::rejection::RejectionNotice;
use super::sign_in::set_cookie;
use super::{html, see_other, storefront};
use crate::shop::command::place_order::MAX_QUANTITY;
use crate::shop::model::Item;
use crate::shop::query::{catalog, ledger};
use crate::shop::{Cents, Sku};
use crate::web::HttpResult;
use crate::web::middleware::auth::app_state;
use crate::web::middleware::body;
use crate::web::middleware::csrf;
use crate::web::problems::Problem;

#[derive(Debug, Template)]
#[template(path = "basket.html")]
struct BasketPage {
    layout: Layout,
    notice: Option<RejectionNotice>,
    token: String,
    lines: Vec<BasketLine>,
    total: Cents,
    is_orderable: bool,
    /// The balance now, and after paying.
    balance: Option<(Cents, Cents)>,
    /// The time for which the units are held until they are paid.
    hold: String,
}

impl BasketPage {
    fn unavailable_lines(&self) -> Vec<&BasketLine> {
        self.lines.iter().filter(|line| line.is_unavailable()).collect()
    }

    /// Returns the lines above the limit per customer, with the quantity that is still allowed.
    fn beyond_limit(&self) -> Vec<(&BasketLine, i64)> {
        let lines = self.lines.iter();
        lines.filter_map(|line| Some((line, line.beyond_limit()?))).collect()
    }
}

#[derive(Debug)]
struct BasketLine {
    sku: Sku,
    name: String,
    quantity: i64,
    /// The value of the quantity field: the quantity, or the input that is wrong.
    input: String,
    price: Cents,
    sum: Cents,
    /// Units in stock; `None` if the shop has no such item.
    stock: Option<i64>,
    limit: Option<i64>,
    /// Units that the customer has in orders already; 0 without a session.
    purchased: i64,
    wrong: Option<String>,
}

impl BasketLine {
    fn is_unavailable(&self) -> bool {
        self.stock.is_none_or(|stock| stock < self.quantity)
    }

    /// Returns the quantity that the customer may still order, if a line in stock exceeds it.
    fn beyond_limit(&self) -> Option<i64> {
        let left = (self.limit? - self.purchased).max(0);
        (!self.is_unavailable() && self.quantity > left).then_some(left)
    }

    /// Returns the upper bound of the quantity field.
    fn max_quantity(&self) -> i64 {
        self.limit.unwrap_or(MAX_QUANTITY)
    }
}

#[derive(Debug, Clone)]
pub(super) struct QuantityError {
    pub sku: Sku,
    pub input: String,
    pub why: String,
}

#[derive(Debug, Deserialize)]
pub struct LineForm {
    #[serde(default)]
    csrf: String,
    sku: String,
    #[serde(default)]
    quantity: String,
    /// Set by the button that removes the line.
    remove: Option<String>,
}

/// Shows the basket.
pub async fn show(request: HttpRequest) -> HttpResult {
    page(&request, StatusCode::OK, &Basket::of(&request), None, None).await
}

/// Adds an item to the basket.
pub async fn add(request: HttpRequest, form: web::Form<LineForm>) -> HttpResult {
    csrf::check_public_form(&request, &form.csrf).await?;
    let sku = body::parse_sku(form.sku.clone())?;
    if catalog::item(&app_state(&request)?.shop, &sku).await?.is_none() {
        return Err(Problem::not_found(format!("there is no item {sku}")));
    }
    let mut basket = Basket::of(&request);
    let added = parse_quantity(&form.quantity, 1).and_then(|units| basket.add(sku.clone(), units));
    match added {
        Ok(()) => redirect_to_basket(&basket),
        Err(why) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let wrong = QuantityError { sku, input: form.into_inner().quantity, why };
            storefront::page(&request, status, None, Some(wrong)).await
        }
    }
}

/// Changes the quantity of a line.
pub async fn change(request: HttpRequest, form: web::Form<LineForm>) -> HttpResult {
    csrf::check_public_form(&request, &form.csrf).await?;
    let sku = body::parse_sku(form.sku.clone())?;
    let mut basket = Basket::of(&request);
    let units = if form.remove.is_some() { Ok(0) } else { parse_quantity(&form.quantity, 0) };
    match units.and_then(|units| basket.set(sku.clone(), units)) {
        Ok(()) => redirect_to_basket(&basket),
        Err(why) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let wrong = QuantityError { sku, input: form.into_inner().quantity, why };
            page(&request, status, &basket, None, Some(wrong)).await
        }
    }
}

fn parse_quantity(text: &str, least: i64) -> Result<i64, String> {
    text.trim().parse().map_err(|_| quantity_rule(least))
}

fn redirect_to_basket(basket: &Basket) -> HttpResult {
    let mut response = see_other("/basket");
    set_cookie(&mut response, &basket.cookie())?;
    Ok(response)
}

/// Renders the page, optionally with a notice above it, or an error beside one quantity.
pub(super) async fn page(
    request: &HttpRequest,
    status: StatusCode,
    basket: &Basket,
    notice: Option<RejectionNotice>,
    wrong: Option<QuantityError>,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let skus: Vec<Sku> = basket.lines().keys().cloned().collect();
    let items =
        if skus.is_empty() { Vec::new() } else { catalog::items_by_sku(shop, &skus).await? };
    let layout = Layout { path: "/basket".to_owned(), ..Layout::of(request).await? };
    let purchased = match &layout.caller {
        Some(caller) => catalog::purchased_by(shop, caller.id, &items).await?,
        None => HashMap::new(),
    };
    let lines = lines(basket, items, &purchased, wrong.as_ref());
    let total_cents = lines.iter().map(|line| line.sum.0).sum();
    let balance = match &layout.caller {
        Some(caller) => ledger::balance(shop, caller.id).await?,
        None => None,
    };
    let page = BasketPage {
        notice,
        token: basket.token(),
        total: Cents(total_cents),
        is_orderable: !lines.iter().any(|it| it.is_unavailable() || it.beyond_limit().is_some()),
        balance: balance.map(|cents| (Cents(cents), Cents(cents - total_cents))),
        lines,
        hold: format_duration(shop.hold),
        layout,
    };
    html(status, &page)
}

fn lines(
    basket: &Basket,
    items: Vec<Item>,
    purchased: &HashMap<Sku, i64>,
    wrong: Option<&QuantityError>,
) -> Vec<BasketLine> {
    let mut items: BTreeMap<Sku, Item> =
        items.into_iter().map(|item| (item.sku.clone(), item)).collect();
    let line = |(sku, quantity): (&Sku, &i64)| {
        let item = items.remove(sku);
        let wrong = wrong.filter(|wrong| wrong.sku == *sku);
        let price_cents = item.as_ref().map_or(0, |item| item.price_cents);
        BasketLine {
            sku: sku.clone(),
            name: item.as_ref().map_or_else(|| sku.to_string(), |item| item.name.clone()),
            quantity: *quantity,
            input: wrong.map_or_else(|| quantity.to_string(), |wrong| wrong.input.clone()),
            price: Cents(price_cents),
            // At most 10⁹ cents, 1,000 units and 50 lines: far below 2⁶³.
            sum: Cents(price_cents * quantity),
            limit: item.as_ref().and_then(|item| item.limit_per_user),
            purchased: purchased.get(sku).copied().unwrap_or(0),
            stock: item.map(|item| item.stock),
            wrong: wrong.map(|wrong| wrong.why.clone()),
        }
    };
    basket.lines().iter().map(line).collect()
}
