//! The caller's orders, newest first; and one order: its goods, its status, its effect on stock and
//! account, and its actions.

use std::collections::HashMap;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::admin::log::LogRow;
use super::admin::sender::SentForm;
use super::format::{FormatTime as _, format_time_left, short_id};
use super::layout::Layout;
use super::ledger_table::LedgerRow;
use super::place_order::execute_once;
use super::rejection::RejectionNotice;
use super::respond::html;
use crate::web::middleware::{DefaultContext, FormFields, Query, SignedInUser, body, csrf, cursor};
use crate::web::{HttpResult, Problem, State, app_state, see_other};
use holdfast_base::messages::{Language, message};
use holdfast_shop::command::return_order::{Return, ReturnedBy};
use holdfast_shop::model::{Order, OrderLine, OrderStatus};
use holdfast_shop::query::{admin_log, ledger, orders};
use holdfast_shop::users::LAB_NAME_PREFIX;
use holdfast_shop::{
    Cents, Error, Execution, Failure, IdempotencyKey, OrderId, Rejection, RequestContext, Shop,
    Sku, UserId, engine,
};

const PAGE_LENGTH: i64 = 25;

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage {
    layout: Layout,
    /// The part for an admin, who looks at an order of any user.
    admin_view: Option<AdminView>,
    /// True for a customer whose order an admin has cancelled or refunded.
    returned_by_shop: bool,
    notice: Option<RejectionNotice>,
    /// The end of the hold, after an attempt to pay too late.
    paid_too_late: Option<OffsetDateTime>,
    order: Order,
    title: String,
    status: &'static str,
    left: Option<Duration>,
    stock: Vec<(Sku, LedgerRow)>,
    money: Vec<LedgerRow>,
    /// True if it is of lab items, which the lab account pays.
    in_lab: bool,
    balance: Cents,
    after_paying: Cents,
    key: IdempotencyKey,
}

/// The part of an order's page that only admins see.
#[derive(Default)]
pub(super) struct AdminView {
    /// The name of the order's customer.
    pub customer: String,
    /// The form that cancels or refunds the order.
    pub form: SentForm,
    /// The text that says what was done; shown of an order of that status only.
    pub done: Option<(OrderStatus, &'static str)>,
    pub log: Vec<LogRow>,
}

impl OrderPage {
    fn is_pending(&self) -> bool {
        self.order.status == OrderStatus::Pending
    }

    fn time_left(&self) -> Option<(String, u128)> {
        let left = self.left.filter(|_| self.is_pending());
        let language = self.layout.language;
        left.map(|left| (format_time_left(left, language), left.as_millis()))
    }

    /// Returns the form of the time left, in which the script replaces `{m}` and `{s}`.
    fn time_left_form(&self) -> String {
        let variables = [("minutes", "{m}".into()), ("seconds", "{s}".into())];
        self.layout.text_with("shop-time-left", &variables)
    }

    fn missing(&self) -> Option<Cents> {
        (self.after_paying.0 < 0).then(|| self.after_paying.minus())
    }

    /// Returns the sentence about the balance of the account that pays: `shop`, or `lab` for the
    /// lab account.
    fn balance_text(&self, shop: &str, lab: &str) -> String {
        let missing = self.missing().unwrap_or(Cents(0));
        let variables = [
            ("balance", self.balance.money().into()),
            ("missing", missing.money().into()),
            ("after", self.after_paying.money().into()),
            ("total", Cents(self.order.total_cents).money().into()),
        ];
        self.layout.text_with(if self.in_lab { lab } else { shop }, &variables)
    }

    fn has_next_step(&self) -> bool {
        self.admin_view.is_none()
            && (self.status == "expired" || self.time_left().is_some() || self.is_paid())
    }

    fn is_paid(&self) -> bool {
        self.order.status == OrderStatus::Paid
    }

    /// Returns the page of the account that the order changes; an admin has none of a user of the
    /// lab.
    fn account_page(&self) -> Option<String> {
        match self.admin_view.as_ref().map(|admin_view| &admin_view.customer) {
            None => Some("/account".to_owned()),
            Some(name) if name.starts_with(LAB_NAME_PREFIX) => None,
            Some(name) => Some(format!("/admin/users/{name}")),
        }
    }

    /// Returns the text that says what the admin has just done, which an old address still names
    /// when it is no longer, or not yet, so.
    fn done_text(&self) -> Option<&'static str> {
        let (status, text) = self.admin_view.as_ref()?.done?;
        (self.order.status == status).then_some(text)
    }

    /// Returns the action that an admin may take on the order, if any.
    fn admin_action(&self) -> Option<&'static str> {
        match self.order.status {
            OrderStatus::Pending => Some("cancel"),
            OrderStatus::Paid => Some("refund"),
            OrderStatus::Cancelled | OrderStatus::Refunded => None,
        }
    }

    /// Returns a sentence about the return of the order, with its price, units and customer.
    fn return_text(&self, id: &str) -> String {
        let units: i64 = self.order.lines.iter().map(|line| line.quantity).sum();
        let customer = self.admin_view.as_ref().map_or("", |admin_view| &admin_view.customer);
        let variables = [
            ("total", Cents(self.order.total_cents).money().into()),
            ("units", units.into()),
            ("name", customer.into()),
        ];
        self.layout.text_with(id, &variables)
    }

    /// Returns the times of the order, for an admin: when it was placed, paid and returned, and the
    /// end of the time to pay.
    fn times(&self) -> Vec<(String, OffsetDateTime)> {
        let entries = self.stock.iter().map(|(_, row)| &row.entry);
        let returned = entries.filter_map(|entry| match entry.reason.as_str() {
            "cancel" => Some(("cancelled", entry.at)),
            "expiry" => Some(("expired", entry.at)),
            "refund" => Some(("refunded", entry.at)),
            _ => None,
        });
        let order = &self.order;
        let placed = [("placed", order.created_at), ("due", order.expires_at)];
        let paid = order.paid_at.map(|at| ("paid", at));
        let all = placed.into_iter().chain(paid).chain(returned.take(1));
        all.map(|(name, at)| (self.layout.text(&format!("admin-time-{name}")), at)).collect()
    }

    fn name<'l>(&self, line: &'l OrderLine) -> &'l str {
        line.names.in_language(self.layout.language)
    }

    /// Returns the name under which the order has an item of its ledger entries.
    fn name_of<'p>(&'p self, sku: &'p Sku) -> &'p str {
        let line = self.order.lines.iter().find(|line| line.sku == *sku);
        line.map_or(sku.as_str(), |line| self.name(line))
    }
}

pub(crate) async fn show(request: HttpRequest, user: SignedInUser, id: Path<String>) -> HttpResult {
    page(&request, user.caller.id, body::parse_order_id(&id)?, None, None).await
}

type OrderForm = (State, HttpRequest, DefaultContext, Path<String>, Form<FormFields>);

pub(crate) async fn pay(parts: OrderForm) -> HttpResult {
    execute(parts, OrderStatus::Paid, engine::pay_order).await
}

/// Tops up the account by the amount that the form states, then pays the order: each once per form.
/// An order that can't be paid is rejected before the top-up.
pub(crate) async fn top_up_and_pay(parts: OrderForm) -> HttpResult {
    let (_, request, _, _, form) = &parts;
    csrf::check_form(request, form.csrf()).await?;
    let cents = form.required("missing_cents")?;
    let cents = cents
        .parse()
        .map_err(|_| Problem::field("missing_cents", message!("problem-no-number")))?;

    let command = async |shop: &Shop, context: &RequestContext, user, id, key: IdempotencyKey| {
        // The lab account is never topped up.
        if is_payable(shop, user, id).await? && !orders::is_of_lab_items(shop, id).await? {
            match engine::top_up(shop, context, user, key.clone(), cents).await {
                Ok(_) | Err(Failure::Rejected(Rejection::KeyUsed { .. })) => {}
                Err(failure) => return Err(failure),
            }
        }
        engine::pay_order(shop, context, user, id, key).await
    };
    execute(parts, OrderStatus::Paid, command).await
}

/// Returns whether the order is the user's, pending and not expired.
async fn is_payable(shop: &Shop, user: UserId, id: OrderId) -> Result<bool, Error> {
    let Some(order) = orders::order(shop, user, id).await? else { return Ok(false) };
    let left = orders::time_left(shop, &[id]).await?.remove(&id);
    Ok(status(&order, left) == "pending")
}

pub(crate) async fn cancel(parts: OrderForm) -> HttpResult {
    let cancel = async |shop: &Shop, context: &RequestContext, user, id, key| {
        let by = ReturnedBy::Customer(user);
        engine::return_order(shop, context, by, id, key, Return::Cancel).await
    };
    execute(parts, OrderStatus::Cancelled, cancel).await
}

pub(crate) async fn refund(parts: OrderForm) -> HttpResult {
    let refund = async |shop: &Shop, context: &RequestContext, user, id, key| {
        let by = ReturnedBy::Customer(user);
        engine::return_order(shop, context, by, id, key, Return::Refund).await
    };
    execute(parts, OrderStatus::Refunded, refund).await
}

/// Executes a command and redirects to the order. A second click finds the order in the target
/// status and redirects as well; any other rejection is shown above the order.
async fn execute<K: From<IdempotencyKey>>(
    (state, request, context, id, form): OrderForm,
    target_status: OrderStatus,
    command: impl AsyncFn(&Shop, &RequestContext, UserId, OrderId, K) -> Result<Execution, Failure>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?.caller.id;
    let id = body::parse_order_id(&id)?;
    let key = form.key("key")?;
    let command = async || command(&state.shop, &context, user, id, key.clone().into()).await;

    match execute_once(command).await {
        Err(Failure::Rejected(Rejection::OrderState { status, .. })) if status == target_status => {
        }
        Err(Failure::Rejected(Rejection::NotFound(what))) => {
            return Err(Problem::missing(what));
        }
        Err(Failure::Rejected(rejection)) => {
            return page(&request, user, id, Some(rejection), None).await;
        }
        Err(Failure::Error(error)) => return Err(error.into()),
        Ok(_) => {}
    }

    Ok(see_other(&format!("/orders/{id}")))
}

/// Shows an order of `user`; with the view of an admin, to an admin.
pub(super) async fn page(
    request: &HttpRequest,
    user: UserId,
    id: OrderId,
    rejection: Option<Rejection>,
    admin_view: Option<AdminView>,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let order = orders::order(shop, user, id).await?.ok_or_else(|| body::unknown_order(&id))?;
    let stock = ledger::stock_entries_of_order(shop, id).await?;
    let money = ledger::balance_entries_of_order(shop, id).await?;

    let in_lab = orders::is_of_lab_items(shop, id).await?;
    let balances = ledger::balances(shop, user).await?;
    let balance_cents = if in_lab { balances.lab_cents } else { balances.own_cents };
    let left = orders::time_left(shop, &[id]).await?.remove(&id);

    let mut log = match order.status {
        // Only the end of an order may be an admin's.
        OrderStatus::Pending | OrderStatus::Paid => Vec::new(),
        _ => admin_log::changes(shop, Some(&id.to_string()), None, 1).await?,
    };

    let layout = Layout::of(request).await?;
    let returned_by_shop = admin_view.is_none() && !log.is_empty();
    let admin_view = admin_view.map(|view| {
        let log = log.drain(..).map(|entry| LogRow::new(entry, layout.language)).collect();
        AdminView { log, ..view }
    });

    // The page itself says that the order was not paid in time, so there is no notice.
    let is_late = matches!(rejection, Some(Rejection::OrderExpired));
    let problem = rejection.map(Problem::from);
    let rejected = problem.as_ref().filter(|_| !is_late);

    let page = OrderPage {
        notice: rejected.map(|problem| RejectionNotice::new(problem, layout.language)),
        admin_view,
        returned_by_shop,
        paid_too_late: is_late.then_some(order.expires_at),
        title: title(&order, layout.language),
        status: status(&order, left),
        left,
        stock: stock.into_iter().map(|(sku, entry)| (sku, LedgerRow::new(entry, false))).collect(),
        money: money.into_iter().map(|entry| LedgerRow::new(entry, true)).collect(),
        in_lab,
        balance: Cents(balance_cents),
        after_paying: Cents(balance_cents - order.total_cents),
        key: IdempotencyKey::generate(),
        order,
        layout,
    };
    let form_status =
        page.admin_view.as_ref().map_or(StatusCode::OK, |view| view.form.errors.status());
    html(problem.as_ref().map_or(form_status, Problem::code), &page)
}

pub(super) fn title(order: &Order, language: Language) -> String {
    let Some(first) = order.lines.first() else { return short_id(&order.id) };
    let variables = [
        ("name", first.names.in_language(language).to_owned().into()),
        ("units", first.quantity.into()),
        ("more", order.lines.len().saturating_sub(1).into()),
    ];
    language.text_with("shop-order-title", &variables)
}

/// Returns the displayed status. An order that can no longer be paid is `expired`; in the database
/// it is pending until its units are returned, and cancelled then.
fn status(order: &Order, left: Option<Duration>) -> &'static str {
    match order.status {
        OrderStatus::Pending if left.is_none() => "expired",
        OrderStatus::Cancelled if order.expired => "expired",
        status => status.name(),
    }
}

#[derive(Debug, Template)]
#[template(path = "orders.html")]
struct OrdersPage {
    layout: Layout,
    orders: Vec<Order>,
    more: Option<OrderId>,
    with_lab: bool,
    /// The orders of lab items among those of the page, listed or not.
    lab_orders: Vec<OrderId>,
    left: HashMap<OrderId, Duration>,
}

impl OrdersPage {
    fn time_left(&self, order: &Order) -> Option<String> {
        let left = self.left.get(&order.id).copied();
        left.map(|left| format_time_left(left, self.layout.language))
    }

    fn first_sku(&self, order: &Order) -> String {
        order.lines.first().map_or_else(String::new, |line| line.sku.to_string())
    }
}

#[derive(Debug, Deserialize)]
pub struct OrdersQuery {
    #[serde(default, deserialize_with = "cursor")]
    after: Option<Uuid>,
    lab: Option<String>,
}

pub(crate) async fn list(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
    query: Query<OrdersQuery>,
) -> HttpResult {
    let (shop, user) = (&state.shop, user.caller.id);

    let query = query.read()?;
    let with_lab = query.lab.as_deref() == Some("on");
    let after = query.after.map(OrderId);
    let page = orders::page(shop, user, after, with_lab, PAGE_LENGTH).await?;
    let orders::OrderList { orders, lab_orders, more } = page;

    let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
    let layout = Layout::of(&request).await?;
    let page = OrdersPage {
        more,
        with_lab,
        lab_orders,
        left: orders::time_left(shop, &ids).await?,
        orders,
        layout,
    };

    html(StatusCode::OK, &page)
}
