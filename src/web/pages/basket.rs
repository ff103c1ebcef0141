//! The basket: its lines, the total, and the balance after paying.

use std::collections::HashMap;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Form;
use askama::Template;
use serde_json::Value;

use super::format::{FormatTime as _, format_time_left};
use super::item;
use super::kept_basket::{self, Basket, QuantityError};
use super::layout::{Layout, language_of};
use super::rejection::{FormErrors, RejectionNotice};
use super::respond::html;
use super::shown_prices::{ShownPrices, format_line};
use crate::web::middleware::{FormFields, body, csrf};
use crate::web::{HttpResult, Problem, app_state};
use holdfast_base::messages::{Language, message};
use holdfast_shop::command::place_order::MAX_QUANTITY;
use holdfast_shop::model::Item;
use holdfast_shop::query::next_return::{self, NextReturn};
use holdfast_shop::query::{catalog, ledger};
use holdfast_shop::{Cents, Rejection, Sku};

#[derive(Debug, Template)]
#[template(path = "basket.html")]
struct BasketPage {
    layout: Layout,
    notice: Option<RejectionNotice>,
    token: String,
    lines: Vec<BasketLine>,
    total: Cents,
    /// The total that the rejected page showed, if prices have changed since.
    total_was: Option<Cents>,
    is_orderable: bool,
    balance: Option<(Cents, Cents)>,
    payment_window: String,
}

#[derive(Debug)]
struct BasketLine {
    sku: Sku,
    quantity: i64,
    /// `None` if the shop has no such item.
    item: Option<Item>,
    /// The price that the rejected page showed, if it has changed since.
    price_was: Option<Cents>,
    /// Units that the customer has in orders already; 0 without a session.
    purchased: i64,
    /// Of an item that is sold out.
    next_return: Option<NextReturn>,
    /// The text in the field of its form.
    input: String,
    errors: FormErrors,
}

pub(super) struct BasketRejection {
    pub reason: RejectionReason,
    /// The prices that the rejected page showed.
    pub shown: ShownPrices,
}

pub(super) enum RejectionReason {
    /// The form is of another basket.
    Changed,
    Problem(Problem),
}

impl RejectionReason {
    /// Of the second copy of a form whose first copy was rejected for its price, returns the same
    /// reason: its page replaces the first one's.
    fn or_new_price(self, basket: &Basket, shown: &ShownPrices, total_cents: i64) -> Self {
        let Some(expected_total_cents) = shown.total_cents else { return self };
        let is_dearer = total_cents > expected_total_cents;
        if !is_dearer || !shown.has_quantities(basket.lines()) {
            return self;
        }
        match self {
            Self::Changed => {
                let changed = Rejection::PriceChanged { expected_total_cents, total_cents };
                Self::Problem(changed.into())
            }
            Self::Problem(_) => self,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Changed => StatusCode::CONFLICT,
            Self::Problem(problem) => problem.code(),
        }
    }

    fn notice(self, basket: &Basket, items: &[Item], language: Language) -> RejectionNotice {
        match self {
            Self::Changed => RejectionNotice::basket_changed(basket.lines().is_empty(), language),
            Self::Problem(problem) => RejectionNotice::new(&name_item(problem, items), language),
        }
    }
}

impl BasketLine {
    fn name(&self) -> &str {
        self.item.as_ref().map_or(self.sku.as_str(), |item| &item.name)
    }

    /// Returns the item, if the shop sells it.
    fn on_sale(&self) -> Option<&Item> {
        self.item.as_ref().filter(|item| !item.hidden)
    }

    fn limit(&self) -> Option<i64> {
        self.item.as_ref().and_then(|item| item.limit_per_user)
    }

    fn price(&self) -> Cents {
        Cents(self.item.as_ref().map_or(0, |item| item.price_cents))
    }

    /// Returns what the page shows of it, for its form.
    fn shown(&self) -> String {
        format_line(&self.sku, self.quantity, self.price().0)
    }

    /// Notes the price that a rejected page showed, if it is another one now.
    fn note_price(&mut self, shown: &ShownPrices) {
        let was = shown.price_cents(&self.sku).map(Cents);
        self.price_was = was.filter(|was| self.item.is_some() && *was != self.price());
    }

    fn sum(&self) -> Cents {
        // At most 10⁹ cents, 1,000 units and 50 lines: far below 2⁶³.
        Cents(self.price().0 * self.quantity)
    }

    fn quantity_id(&self) -> String {
        format!("quantity-{}", self.sku)
    }

    fn is_unavailable(&self) -> bool {
        self.on_sale().is_none_or(|item| item.stock < self.quantity)
    }

    /// Returns the quantity that the customer may still order, if a line in stock exceeds it.
    fn beyond_limit(&self) -> Option<i64> {
        let left = (self.limit()? - self.purchased).max(0);
        (!self.is_unavailable() && self.quantity > left).then_some(left)
    }

    fn max_quantity(&self) -> i64 {
        self.limit().unwrap_or(MAX_QUANTITY)
    }
}

pub(crate) async fn show(request: HttpRequest) -> HttpResult {
    page(&request, &Basket::load(&request).await?, None, None).await
}

pub(crate) async fn add(request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    csrf::check_public_form(&request, form.csrf()).await?;
    let sku = body::parse_sku(form.required("sku")?)?;
    match catalog::item(&app_state(&request)?.shop, &sku).await? {
        None => return Err(body::unknown_item(&sku)),
        Some(item) if item.hidden => {
            return Err(Problem::missing(message!("problem-item-hidden", sku)));
        }
        Some(_) => {}
    }

    let (input, language) = (form.text("quantity"), language_of(&request));
    let add = |basket: &mut Basket| basket.add(sku.clone(), input, language);
    match kept_basket::change(&request, add).await? {
        Ok(response) => Ok(response),
        Err(why) => {
            let wrong = QuantityError { sku: sku.clone(), input: input.to_owned(), why };
            item::page(&request, &sku, Some(wrong)).await
        }
    }
}

pub(crate) async fn change(request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    csrf::check_public_form(&request, form.csrf()).await?;
    let sku = body::parse_sku(form.required("sku")?)?;
    let input = if form.text("remove").is_empty() { form.text("quantity") } else { "0" };
    let language = language_of(&request);
    let change = |basket: &mut Basket| basket.change(&sku, input, language);
    match kept_basket::change(&request, change).await? {
        Ok(response) => Ok(response),
        Err(why) => {
            let wrong = QuantityError { sku: sku.clone(), input: input.to_owned(), why };
            page(&request, &Basket::load(&request).await?, None, Some(wrong)).await
        }
    }
}

pub(super) async fn page(
    request: &HttpRequest,
    basket: &Basket,
    rejection: Option<BasketRejection>,
    wrong: Option<QuantityError>,
) -> HttpResult {
    let shop = &app_state(request)?.shop;

    let skus: Vec<Sku> = basket.lines().keys().cloned().collect();
    let items =
        if skus.is_empty() { Vec::new() } else { catalog::items_by_sku(shop, &skus).await? };

    let layout = Layout { path: "/basket".to_owned(), ..Layout::of(request).await? };
    let (purchased, balance) = match &layout.caller {
        Some(caller) => (
            catalog::purchased_by(shop, caller.id, &items).await?,
            ledger::balance(shop, caller.id).await?,
        ),
        None => (HashMap::new(), None),
    };

    let sold_out: Vec<Sku> =
        items.iter().filter(|item| item.stock == 0).map(|item| item.sku.clone()).collect();
    let returns = next_return::next_returns(shop, &sold_out).await;
    let items: Vec<Item> = items.into_iter().map(|item| layout.named(item)).collect();

    let (reason, shown) = match rejection {
        Some(BasketRejection { reason, shown }) => (Some(reason), shown),
        None => (None, ShownPrices::default()),
    };

    let is_wrong = wrong.is_some();
    let mut wrong = wrong;
    let line = |(sku, quantity): (&Sku, &i64)| {
        let wrong = wrong.take_if(|wrong| wrong.sku == *sku).map(QuantityError::into_form);
        let (input, errors) =
            wrong.unwrap_or_else(|| (quantity.to_string(), FormErrors::default()));
        BasketLine {
            sku: sku.clone(),
            quantity: *quantity,
            item: items.iter().find(|item| item.sku == *sku).cloned(),
            price_was: None,
            purchased: purchased.get(sku).copied().unwrap_or(0),
            next_return: returns.get(sku).copied(),
            input,
            errors,
        }
    };
    let mut lines: Vec<BasketLine> = basket.lines().iter().map(line).collect();
    for line in &mut lines {
        line.note_price(&shown);
    }
    let total_cents = lines.iter().map(|line| line.sum().0).sum();
    let has_new_price = lines.iter().any(|line| line.price_was.is_some());
    let total_was = shown.total_cents.filter(|_| has_new_price).map(Cents);

    let reason = reason.map(|reason| reason.or_new_price(basket, &shown, total_cents));
    let status = match &reason {
        Some(reason) => reason.status(),
        None if is_wrong => StatusCode::UNPROCESSABLE_ENTITY,
        None => StatusCode::OK,
    };
    let notice = reason.map(|reason| reason.notice(basket, &items, layout.language));
    let page = BasketPage {
        notice,
        token: basket.token(),
        total: Cents(total_cents),
        total_was,
        is_orderable: !lines.iter().any(|it| it.is_unavailable() || it.beyond_limit().is_some()),
        balance: balance.map(|cents| (Cents(cents), Cents(cents - total_cents))),
        lines,
        payment_window: format_time_left(shop.payment_window, layout.language),
        layout,
    };
    html(status, &page)
}

fn name_item(problem: Problem, items: &[Item]) -> Problem {
    let sku = problem.member("sku").and_then(Value::as_str);
    match items.iter().find(|item| Some(item.sku.as_str()) == sku) {
        Some(item) => problem.with_item_name(&item.name),
        None => problem,
    }
}
