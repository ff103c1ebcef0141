//! The orders of all users, for admins.

use std::fmt::Display;

use actix_web::HttpRequest;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::lists::{Page, page_before};
use super::responses::json;
use crate::web::middleware::{AdminUser, ListParameters, Query, list_query};
use crate::web::{HttpResult, Problem, State};
use holdfast_base::messages::message;
use holdfast_shop::model::{LedgerEntry, LoggedChange, Order};
use holdfast_shop::query::order_search::{
    self, FoundOrder, FoundOrders, FoundStatus, OrderSearch, SearchFields,
};
use holdfast_shop::query::{admin_log, ledger, orders};
use holdfast_shop::{OrderId, Sku, UserId};

/// Which orders are listed: those that fit all that is given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OrderQuery {
    /// The order's id, or 4 and more hexadecimal digits of one.
    #[serde(default)]
    id: String,
    /// The user name, or a part of names.
    #[serde(default)]
    user: String,
    /// The sku of an item of the order, or a part of skus and names.
    #[serde(default)]
    sku: String,
    /// Also orders of lab items only.
    #[serde(default)]
    lab: bool,
    /// The order's status; `expired`: not paid in time, a part of those that are `cancelled`, and
    /// of those that are `pending` and due.
    #[param(inline)]
    status: Option<FoundStatus>,
}

/// An order with its user, and all that it changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderHistory {
    /// The user name.
    pub user: String,
    pub order: Order,
    /// Its entries in the ledgers of its items, oldest first.
    pub stock: Vec<ItemEntry>,
    /// Its entries in the ledger of the account that paid, oldest first.
    pub balance: Vec<LedgerEntry>,
    /// Its entry in the admin log, if an admin has cancelled or refunded it.
    pub log: Vec<LoggedChange>,
}

/// An entry of an item's ledger, with the item.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemEntry {
    pub sku: Sku,
    pub entry: LedgerEntry,
}

/// Searches the orders of all users, newest first (admin). A page looks through 5,000 orders at
/// most: it may be short, even empty, and have a next one.
#[utoipa::path(get, path = "/api/admin/orders", tag = "admin",
    params(ListParameters, OrderQuery),
    responses((status = 200, body = Page<FoundOrder>), (status = 403)))]
pub(crate) async fn list_orders(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    filter: Query<OrderQuery>,
) -> HttpResult {
    let (after, limit) = list_query::<OrderId>(&request)?;
    let filter = filter.read()?;
    let fields = SearchFields {
        id: &filter.id,
        user: &filter.user,
        sku: &filter.sku,
        status: filter.status,
        with_lab: filter.lab,
    };
    let found = match OrderSearch::of(&state.shop, fields).await? {
        Some(search) => order_search::search(&state.shop, &search, after, limit).await?,
        None => FoundOrders::default(),
    };
    page_before(&request, found.orders, found.more, limit)
}

/// Returns any user's order, with its changes of stock and balance (admin).
#[utoipa::path(get, path = "/api/admin/orders/{id}", tag = "admin",
    responses((status = 200, body = OrderHistory), (status = 403)))]
pub(crate) async fn read_order(state: State, _: AdminUser, id: Path<String>) -> HttpResult {
    let shop = &state.shop;
    let (id, owner, user) = find(&state, &id).await?;

    let order = orders::order(shop, owner, id).await?.ok_or_else(|| unknown_order(&id))?;
    let stock = ledger::stock_entries_of_order(shop, id).await?;
    let stock = stock.into_iter().map(|(sku, entry)| ItemEntry { sku, entry }).collect();
    let balance = ledger::balance_entries_of_order(shop, id).await?;
    let log = admin_log::changes(shop, Some(&id.to_string()), None, 1).await?;
    json(OrderHistory { user, order, stock, balance, log })
}

/// Returns the order of any user with that id, its user and the user's name.
pub(in crate::web) async fn find(
    state: &State,
    id: &str,
) -> Result<(OrderId, UserId, String), Problem> {
    let order = Uuid::parse_str(id).map(OrderId).map_err(|_| unknown_order(&id))?;
    let owner = order_search::owner(&state.shop, order).await?;
    let (user, name) = owner.ok_or_else(|| unknown_order(&id))?;
    Ok((order, user, name))
}

fn unknown_order(id: &impl Display) -> Problem {
    Problem::missing(message!("admin-no-such-order", order = id))
}
