//! An item's ledger: its running sums and its entries. The cost of the page does not depend on the
//! length of the ledger; `/api/items/{sku}/audit` examines all of it.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;

use super::format::FormatTime as _;
use super::layout::Layout;
use super::ledger_table::{LedgerQuery, LedgerTable, ORDERS_OF_ALL, OWN_ORDERS, PAGE_LENGTH};
use super::respond::html;
use crate::web::middleware::{Query, body};
use crate::web::{HttpResult, Problem, app_state};
use holdfast_shop::audit::item::MAX_RECENT_ENTRIES;
use holdfast_shop::audit::{self, ItemSummary};
use holdfast_shop::model::Item;
use holdfast_shop::query::{catalog, ledger, orders};
use holdfast_shop::{OrderId, Shop, Sku};

#[derive(Debug, Template)]
#[template(path = "item_ledger.html")]
struct ItemLedgerPage {
    layout: Layout,
    item: Item,
    summary: ItemSummary,
    ledger: LedgerTable,
}

pub(crate) async fn show(
    request: HttpRequest,
    sku: Path<String>,
    query: Query<LedgerQuery>,
) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let before = query.read()?.before;
    page(&request, &sku, before).await
}

async fn page(request: &HttpRequest, sku: &Sku, before: Option<i64>) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let item = catalog::item(shop, sku).await?.ok_or_else(|| body::unknown_item(sku))?;

    let entries = ledger::latest_stock_entries(shop, sku, before, PAGE_LENGTH + 1).await?;
    let mut connection = shop.connection().await?;
    let summary = audit::summary(&mut connection, sku).await?;
    let forks = audit::forks_near(&mut connection, sku, before.unwrap_or(i64::MAX)).await?;
    drop(connection);
    let summary = summary.ok_or_else(|| body::unknown_item(sku))?;

    let layout = Layout::of(request).await?;
    let mut ledger = LedgerTable::new(entries, false, format!("/items/{sku}/ledger"), before);
    ledger.mark_forks(&forks);
    link_orders(shop, &layout, &mut ledger).await?;

    let item = layout.named(item);
    html(StatusCode::OK, &ItemLedgerPage { layout, item, summary, ledger })
}

/// Links the caller's own orders to their pages, and for an admin all others as well.
async fn link_orders(
    shop: &Shop,
    layout: &Layout,
    ledger: &mut LedgerTable,
) -> Result<(), Problem> {
    let ids: Vec<OrderId> = ledger.rows.iter().filter_map(|row| row.entry.order_id).collect();
    if let Some(caller) = &layout.caller
        && !ids.is_empty()
    {
        if caller.admin {
            ledger.link_orders(ORDERS_OF_ALL, |_| true);
        }
        let own = orders::owned_among(shop, caller.id, &ids).await?;
        ledger.link_orders(OWN_ORDERS, |order| own.contains(&order));
    }

    Ok(())
}
