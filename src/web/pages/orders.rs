//! The caller's orders, newest first.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;
use uuid::Uuid;

use super::format::{FormatMoney as _, FormatTime as _, format_time_left};
use super::layout::Layout;
use super::order::{status, title};
use super::respond::html;
use crate::shop::model::{Item, Order};
use crate::shop::query::catalog;
use crate::shop::query::orders::{self, OrderPage};
use crate::shop::{Cents, OrderId, Sku};
use crate::web::middleware::{Query, SignedInUser};
use crate::web::{HttpResult, State};

const PAGE_LENGTH: i64 = 25;

#[derive(Debug, Template)]
#[template(path = "orders.html")]
struct OrdersPage {
    layout: Layout,
    orders: Vec<Order>,
    more: Option<OrderId>,
    with_lab: bool,
    /// The orders of lab items among those of the page, listed or not.
    lab_orders: Vec<OrderId>,
    /// The items of the orders.
    items: Vec<Item>,
    left: HashMap<OrderId, Duration>,
}

impl OrdersPage {
    fn status(&self, order: &Order) -> &'static str {
        status(order, self.left.get(&order.id).copied())
    }

    fn time_left(&self, order: &Order) -> Option<String> {
        let left = self.left.get(&order.id).copied();
        left.map(|left| format_time_left(left, self.layout.language))
    }

    fn lab_count(&self) -> i64 {
        i64::try_from(self.lab_orders.len()).unwrap_or(i64::MAX)
    }

    fn title(&self, order: &Order) -> String {
        title(order, &self.items, self.layout.language)
    }

    /// Returns the item of the order's picture.
    fn first_sku(&self, order: &Order) -> String {
        order.lines.first().map_or_else(String::new, |line| line.sku.to_string())
    }

    fn total(&self, order: &Order) -> Cents {
        Cents(order.total_cents)
    }
}

#[derive(Debug, Deserialize)]
pub struct OrdersQuery {
    after: Option<Uuid>,
    /// `on` includes the orders of lab items.
    lab: Option<String>,
}

pub async fn list(
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
    let OrderPage { orders, lab_orders, more } = page;
    let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
    let lines = orders.iter().flat_map(|order| &order.lines);
    let skus: BTreeSet<Sku> = lines.map(|line| line.sku.clone()).collect();
    let skus: Vec<Sku> = skus.into_iter().collect();
    let items = catalog::items_by_sku(shop, &skus).await?;
    let layout = Layout::of(&request).await?;
    let page = OrdersPage {
        items: items.into_iter().map(|item| layout.named(item)).collect(),
        more,
        with_lab,
        lab_orders,
        left: orders::time_left(shop, &ids).await?,
        orders,
        layout,
    };
    html(StatusCode::OK, &page)
}
