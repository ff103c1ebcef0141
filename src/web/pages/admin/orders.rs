//! The orders of all users: a search.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::{Deserialize, Serialize};
use strum::VariantArray as _;
use uuid::Uuid;

use crate::web::middleware::{AdminUser, Query, cursor};
use crate::web::pages::format::{FormatTime as _, short_id};
use crate::web::pages::layout::Layout;
use crate::web::pages::order;
use crate::web::pages::respond::html;
use crate::web::{HttpResult, State};
use holdfast_shop::model::Order;
use holdfast_shop::query::order_search::{
    self, FoundOrder, FoundOrders, FoundStatus, MAX_SCANNED, OrderSearch, SearchFields,
};
use holdfast_shop::{Cents, Error, OrderId, Shop};

const PAGE_LENGTH: i64 = 50;

#[derive(Debug, Template)]
#[template(path = "admin_orders.html")]
struct AdminOrdersPage {
    layout: Layout,
    filter: OrderFilter,
    orders: Vec<FoundOrder>,
    more: Option<OrderId>,
}

/// The fields of the search form.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct OrderFilter {
    id: String,
    user: String,
    sku: String,
    status: String,
    lab: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PageQuery {
    #[serde(deserialize_with = "cursor")]
    after: Option<Uuid>,
}

impl OrderFilter {
    /// Returns the search of this form; `None` if no order can match.
    pub(super) async fn search(&self, shop: &Shop) -> Result<Option<OrderSearch>, Error> {
        let name = self.status.trim();
        let status = FoundStatus::VARIANTS.iter().copied().find(|status| status.name() == name);
        if status.is_none() && !name.is_empty() {
            return Ok(None);
        }
        let (id, user, sku) = (&self.id, &self.user, &self.sku);
        let with_lab = !self.lab.is_empty();
        OrderSearch::of(shop, SearchFields { id, user, sku, status, with_lab }).await
    }

    /// Returns the filter as a query, without what is not given.
    fn query(&self) -> String {
        let fields = [
            ("id", &self.id),
            ("user", &self.user),
            ("sku", &self.sku),
            ("status", &self.status),
            ("lab", &self.lab),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.trim().is_empty()) {
            query.append_pair(name, value.trim());
        }
        query.finish()
    }
}

impl AdminOrdersPage {
    /// Returns the query of another page of the same search.
    fn query_after(&self, after: &OrderId) -> String {
        match self.filter.query() {
            filter if filter.is_empty() => format!("after={after}"),
            filter => format!("{filter}&after={after}"),
        }
    }

    /// Returns the displayed status: that of the row, or `expired` once the units were returned.
    fn status(&self, order: &Order) -> &'static str {
        if order.expired { "expired" } else { order.status.name() }
    }
}

pub(crate) async fn list(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    filter: Query<OrderFilter>,
    query: Query<PageQuery>,
) -> HttpResult {
    let (filter, after) = (filter.read()?, query.read()?.after.map(OrderId));
    let shop = &state.shop;

    let FoundOrders { orders, more } = match filter.search(shop).await? {
        Some(search) => order_search::search(shop, &search, after, PAGE_LENGTH).await?,
        None => FoundOrders::default(),
    };

    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &AdminOrdersPage { layout, filter, orders, more })
}
