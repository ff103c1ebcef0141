//! The caller's orders, newest first.

use std::collections::HashMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::format::{FormatTime as _, format_count, format_time_left, short_id};
use super::html;
use super::layout::Layout;
use super::order::status;
use crate::shop::model::Order;
use crate::shop::query::orders::{self, Lab};
use crate::shop::{Cents, OrderId};
use crate::web::middleware::csrf;
use crate::web::{AppState, HttpResult};

const ON_ONE_PAGE: usize = 25;

#[derive(Debug, Template)]
#[template(path = "orders.html")]
struct OrdersPage {
    layout: Layout,
    orders: Vec<Row>,
    more: Option<OrderId>,
    with_lab: bool,
    /// Number of orders that contain only lab items.
    lab: i64,
}

impl OrdersPage {
    fn lab_grouped(&self) -> String {
        format_count(self.lab)
    }
}

#[derive(Debug)]
struct Row {
    id: OrderId,
    short: String,
    status: String,
    left: Option<String>,
    units: i64,
    total: Cents,
    /// True if the order contains only lab items.
    is_lab: bool,
    at: OffsetDateTime,
}

#[derive(Debug, Deserialize)]
pub struct Listing {
    after: Option<Uuid>,
    /// `on` includes the orders of lab items.
    lab: Option<String>,
}

pub async fn list(
    state: web::Data<AppState>,
    request: HttpRequest,
    listing: web::Query<Listing>,
) -> HttpResult {
    let user = csrf::require_user(&request).await?.caller.id;
    let limit = i64::try_from(ON_ONE_PAGE + 1).unwrap_or(i64::MAX);
    let shop = &state.shop;
    let with_lab = listing.lab.as_deref() == Some("on");
    let which = if with_lab { Lab::With } else { Lab::Without };
    let mut orders = orders::orders(shop, user, listing.after.map(OrderId), which, limit).await?;
    let is_more = orders.len() > ON_ONE_PAGE;
    orders.truncate(ON_ONE_PAGE);
    let more = orders.last().filter(|_| is_more).map(|order| order.id);
    let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
    let marked = if with_lab { orders::lab_among(shop, &ids).await? } else { Vec::new() };
    let lab = orders::count_lab(shop, user).await?;
    let left = orders::time_left(shop, &ids).await?;
    let orders = orders.into_iter().map(|order| row(order, &marked, &left)).collect();
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &OrdersPage { layout, orders, more, with_lab, lab })
}

fn row(order: Order, lab: &[OrderId], left: &HashMap<OrderId, Duration>) -> Row {
    let left = left.get(&order.id).copied();
    Row {
        id: order.id,
        short: short_id(&order.id),
        left: left.map(format_time_left),
        units: order.lines.iter().map(|line| line.quantity).sum(),
        total: Cents(order.total_cents),
        is_lab: lab.contains(&order.id),
        at: order.created_at,
        status: status(&order, left).to_owned(),
    }
}
