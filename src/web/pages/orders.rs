//! The caller's orders, newest first.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::frame::Frame;
use super::words::{moment, rfc3339, short, time_left};
use super::{door, html};
use crate::shop::orders::{self, Order};
use crate::shop::{Cents, OrderId};
use crate::web::Site;
use crate::web::problems::Problem;

/// How many orders one page shows.
const ON_ONE_PAGE: usize = 25;

#[derive(Debug, Template)]
#[template(path = "orders.html")]
struct OrdersPage {
    frame: Frame,
    orders: Vec<Row>,
    more: Option<OrderId>,
}

#[derive(Debug)]
struct Row {
    id: OrderId,
    short: String,
    status: String,
    left: Option<String>,
    units: i64,
    total: Cents,
    at: String,
    at_rfc3339: String,
}

/// Which orders.
#[derive(Debug, Deserialize)]
pub struct Listing {
    after: Option<Uuid>,
}

/// The page.
///
/// # Errors
/// Nobody signed in; Postgres's.
pub async fn list(
    site: web::Data<Site>,
    request: HttpRequest,
    listing: web::Query<Listing>,
) -> Result<HttpResponse, Problem> {
    let user = door::signed_in(&request).await?.caller.id;
    let limit = i64::try_from(ON_ONE_PAGE + 1).unwrap_or(i64::MAX);
    let mut orders = orders::orders(&site.shop, user, listing.after.map(OrderId), limit).await?;
    let is_more = orders.len() > ON_ONE_PAGE;
    orders.truncate(ON_ONE_PAGE);
    let more = orders.last().filter(|_| is_more).map(|order| order.id);
    let now = OffsetDateTime::now_utc();
    let orders = orders.into_iter().map(|order| row(order, now)).collect();
    let frame = Frame::of(&request).await?;
    html(StatusCode::OK, &OrdersPage { frame, orders, more })
}

fn row(order: Order, now: OffsetDateTime) -> Row {
    Row {
        id: order.id,
        short: short(&order.id),
        left: time_left(order.expires_at, now),
        units: order.lines.iter().map(|line| line.quantity).sum(),
        total: Cents(order.total_cents),
        at: moment(order.created_at),
        at_rfc3339: rfc3339(order.created_at),
        status: order.status,
    }
}
