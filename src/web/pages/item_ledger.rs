//! An item's ledger: its running sums, its entries, and forms for stock and limit. The cost of the
//! page does not depend on the length of the ledger; `/api/items/{sku}/audit` examines all of it.

use actix_web::HttpRequest;
use actix_web::web::{Form, Path};
use askama::Template;

use super::format::FormatTime as _;
use super::layout::{Layout, language_of};
use super::ledger_table::{LedgerQuery, LedgerTable, ORDERS_OF_ALL, OWN_ORDERS, PAGE_LENGTH};
use super::place_order::submit;
use super::rejection::FormErrors;
use super::respond::html;
use crate::web::middleware::{DefaultOptions, FormFields, Query, body, csrf};
use crate::web::{HttpResult, Problem, State, app_state, see_other};
use holdfast_shop::audit::item::MAX_RECENT_ENTRIES;
use holdfast_shop::audit::{self, ItemSummary};
use holdfast_shop::command::restock::RestockRequest;
use holdfast_shop::command::set_limit::MAX_LIMIT;
use holdfast_shop::model::Item;
use holdfast_shop::query::{catalog, ledger, orders};
use holdfast_shop::{IdempotencyKey, OrderId, Shop, Sku, engine};

const LIMIT: &str = "limit_per_user";

#[derive(Template)]
#[template(path = "item_ledger.html")]
struct ItemLedgerPage {
    layout: Layout,
    item: Item,
    summary: ItemSummary,
    ledger: LedgerTable,
    key: IdempotencyKey,
    /// The input of a rejected form.
    form: FormFields,
    errors: FormErrors,
}

impl ItemLedgerPage {
    fn limit_input(&self) -> String {
        let limit = self.item.limit_per_user.map_or_else(String::new, |limit| limit.to_string());
        self.form.all(LIMIT).next().map_or(limit, str::to_owned)
    }
}

pub async fn show(
    request: HttpRequest,
    sku: Path<String>,
    query: Query<LedgerQuery>,
) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let before = query.read()?.before;
    page(&request, &sku, before, FormFields::default(), FormErrors::default()).await
}

type ItemForm = (State, HttpRequest, DefaultOptions, Path<String>, Form<FormFields>);

pub async fn restock((state, request, options, sku, form): ItemForm) -> HttpResult {
    let admin = csrf::check_admin_form(&request, form.csrf()).await?.caller.id;
    let sku = body::parse_sku(&sku)?;
    let key = form.key("key")?;
    let language = language_of(&request);
    let (delta, reason) = (form.required("delta")?, form.required("reason")?.to_owned());

    let number = delta.trim().replace('−', "-");
    let errors = match number.strip_prefix('+').unwrap_or(&number).parse() {
        Err(_) => FormErrors::field("delta", &language.text("shop-delta-unclear")),
        Ok(delta) => {
            let restock = RestockRequest { delta, reason };
            let command = async || {
                let (sku, key) = (sku.clone(), key.clone());
                engine::restock(&state.shop, &options, admin, sku, &restock, key).await
            };
            submit(command).await?.explain("reason", &language.text("shop-reason-rule"))
        }
    };

    respond(&request, &sku, form.into_inner(), errors).await
}

pub async fn limit((state, request, options, sku, form): ItemForm) -> HttpResult {
    let admin = csrf::check_admin_form(&request, form.csrf()).await?.caller.id;
    let sku = body::parse_sku(&sku)?;
    let limit = match form.required(LIMIT)?.trim() {
        "" => Ok(None),
        number => number.parse().map(Some),
    };

    let rule = language_of(&request).text_with("shop-limit-rule", &[("max", MAX_LIMIT.into())]);
    let errors = match limit {
        Err(_) => FormErrors::field(LIMIT, &rule),
        Ok(limit) => {
            let (shop, options) = (&state.shop, &options);
            let command =
                async || engine::set_limit(shop, options, admin, sku.clone(), limit, None).await;
            submit(command).await?.explain(LIMIT, &rule)
        }
    };

    respond(&request, &sku, form.into_inner(), errors).await
}

async fn respond(
    request: &HttpRequest,
    sku: &Sku,
    form: FormFields,
    errors: FormErrors,
) -> HttpResult {
    if errors.is_empty() {
        return Ok(see_other(&format!("/items/{sku}/ledger")));
    }
    page(request, sku, None, form, errors).await
}

async fn page(
    request: &HttpRequest,
    sku: &Sku,
    before: Option<i64>,
    form: FormFields,
    errors: FormErrors,
) -> HttpResult {
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

    let (item, key) = (layout.named(item), IdempotencyKey::generate());
    html(errors.status(), &ItemLedgerPage { layout, item, summary, ledger, key, form, errors })
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
