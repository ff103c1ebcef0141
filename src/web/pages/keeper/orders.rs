//! The orders of all users: a search, and one order with its changes of stock and balance.

use std::collections::BTreeSet;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use serde::{Deserialize, Serialize};
use strum::VariantArray as _;
use uuid::Uuid;

use crate::web::api::admin_orders::find;
use crate::web::middleware::{AdminUser, Query, cursor};
use crate::web::pages::format::{FormatTime as _, short_id};
use crate::web::pages::layout::Layout;
use crate::web::pages::order;
use crate::web::pages::respond::html;
use crate::web::{HttpResult, State};
use holdfast_shop::model::{Item, Order, OrderStatus};
use holdfast_shop::query::order_search::{
    self, FoundOrder, FoundOrders, IdPart, MAX_SCANNED, OrderSearch, SkuPart,
};
use holdfast_shop::query::{catalog, users};
use holdfast_shop::{Cents, Error, OrderId, Shop, Sku};

const PAGE_LENGTH: i64 = 50;

#[derive(Debug, Template)]
#[template(path = "admin_orders.html")]
struct OrdersPage {
    layout: Layout,
    filter: OrderFilter,
    /// Why nothing can match.
    impossible: Option<String>,
    orders: Vec<FoundOrder>,
    more: Option<OrderId>,
    items: Vec<Item>,
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

/// The search of a form, or why no order can match it.
pub(super) enum Wanted {
    Search(OrderSearch),
    NoSuchUser(String),
    Impossible,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PageQuery {
    #[serde(deserialize_with = "cursor")]
    after: Option<Uuid>,
}

impl OrderFilter {
    pub(super) async fn wanted(&self, shop: &Shop) -> Result<Wanted, Error> {
        let mut search = OrderSearch { with_lab: !self.lab.is_empty(), ..OrderSearch::default() };

        if let Some(id) = given(&self.id) {
            // As pages and letters show it, perhaps with a sign before it.
            let Some(id) = IdPart::parse(id.trim_start_matches('#')) else {
                return Ok(Wanted::Impossible);
            };
            search.id = Some(id);
        }
        if let Some(sku) = given(&self.sku) {
            let Ok(sku) = Sku::try_from(sku.to_lowercase()) else { return Ok(Wanted::Impossible) };
            // The page of an item links to its orders: not to those of a sku that begins alike.
            search.sku = Some(match catalog::item(shop, &sku).await? {
                Some(_) => SkuPart::Whole(sku),
                None => SkuPart::Beginning(sku),
            });
        }
        if let Some(name) = given(&self.status) {
            let status = OrderStatus::VARIANTS.iter().find(|status| status.name() == name);
            let Some(status) = status else { return Ok(Wanted::Impossible) };
            search.status = Some(*status);
        }
        if let Some(name) = given(&self.user) {
            let Some(user) = users::id(shop, &name.to_lowercase()).await? else {
                return Ok(Wanted::NoSuchUser(name.to_owned()));
            };
            search.user = Some(user);
        }

        Ok(Wanted::Search(search))
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

fn given(field: &str) -> Option<&str> {
    Some(field.trim()).filter(|text| !text.is_empty())
}

impl OrdersPage {
    fn statuses(&self) -> Vec<&'static str> {
        OrderStatus::VARIANTS.iter().map(|status| status.name()).collect()
    }

    /// Returns the query of another page of the same search.
    fn query_after(&self, after: &OrderId) -> String {
        match self.filter.query() {
            filter if filter.is_empty() => format!("after={after}"),
            filter => format!("{filter}&after={after}"),
        }
    }

    fn short(&self, order: &Order) -> String {
        short_id(&order.id)
    }

    fn title(&self, order: &Order) -> String {
        order::title(order, &self.items, self.layout.language)
    }

    /// Returns the displayed status: that of the row, or `expired` once the units were returned.
    fn status(&self, order: &Order) -> &'static str {
        if order.expired { "expired" } else { order.status.name() }
    }
}

pub async fn list(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    filter: Query<OrderFilter>,
    query: Query<PageQuery>,
) -> HttpResult {
    let (filter, after) = (filter.read()?, query.read()?.after.map(OrderId));
    let shop = &state.shop;

    let wanted = filter.wanted(shop).await?;
    let FoundOrders { orders, more } = match &wanted {
        Wanted::Search(search) => order_search::search(shop, search, after, PAGE_LENGTH).await?,
        _ => FoundOrders::default(),
    };
    let lines = orders.iter().flat_map(|found| &found.order.lines);
    let skus: BTreeSet<Sku> = lines.map(|line| line.sku.clone()).collect();
    let items = catalog::items_by_sku(shop, &Vec::from_iter(skus)).await?;

    let layout = Layout::of(&request).await?;
    let impossible = match &wanted {
        Wanted::NoSuchUser(name) => {
            Some(layout.text_with("keeper-no-such-user", &[("name", name.as_str().into())]))
        }
        _ => None,
    };
    let items = items.into_iter().map(|item| layout.named(item)).collect();
    html(StatusCode::OK, &OrdersPage { layout, filter, impossible, orders, more, items })
}

/// Shows any user's order. Read only: its user pays, cancels and refunds it.
pub async fn show(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    id: Path<String>,
) -> HttpResult {
    let (id, user, name) = find(&state, &id).await?;
    order::page(&request, user, id, None, Some(name)).await
}
