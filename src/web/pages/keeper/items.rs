//! The list of all items of the shop, also hidden ones.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;

use crate::web::middleware::{AdminUser, Query};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, State};
use holdfast_shop::model::Item;
use holdfast_shop::query::catalog;
use holdfast_shop::{Cents, Sku};

const PAGE_LENGTH: i64 = 50;

#[derive(Debug, Template)]
#[template(path = "admin_items.html")]
struct ItemsPage {
    layout: Layout,
    items: Vec<Item>,
    more: Option<Sku>,
    /// The beginning of a sku that is looked for.
    search: String,
}

#[derive(Debug, Deserialize)]
pub struct ItemsQuery {
    #[serde(default)]
    sku: String,
    after: Option<String>,
}

impl ItemsQuery {
    pub(super) fn search(&self) -> String {
        // Postgres refuses texts with a zero in them.
        self.sku.trim().replace('\0', "")
    }
}

pub async fn list(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    query: Query<ItemsQuery>,
) -> HttpResult {
    let query = query.read()?;
    let search = query.search();
    let after = query.after.and_then(|sku| Sku::try_from(sku).ok());

    let all = catalog::all_items(&state.shop, &search, after.as_ref(), PAGE_LENGTH + 1);
    let mut items = all.await?;
    let more = cut_page(&mut items, PAGE_LENGTH, |item| item.sku.clone());

    let layout = Layout::of(&request).await?;
    let items = items.into_iter().map(|item| layout.named(item)).collect();
    html(StatusCode::OK, &ItemsPage { layout, items, more, search })
}
