//! An item's page: its ledger, as a chain in which each entry begins where the previous one ended,
//! and forms for stock and limit. A broken link is marked, and entries that were computed from the
//! same read are marked as a fork.

use std::collections::BTreeSet;

use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::duplicate_submit::submit;
use super::form_errors::FormErrors;
use super::format::{FormatTime as _, short_id};
use super::layout::Layout;
use super::ledger_rows::{self, LedgerQuery, LedgerRow, LedgerUnit, PAGE_LENGTH};
use super::rejection::RejectionNotice;
use super::{html, see_other};
use crate::shop::audit::{self, ItemAudit};
use crate::shop::command::restock::RestockRequest;
use crate::shop::command::set_limit::MAX_LIMIT;
use crate::shop::model::{Item, LedgerEntry};
use crate::shop::query::{catalog, ledger, orders};
use crate::shop::{Cents, IdempotencyKey, OrderId, Rejection, Shop, Sku, engine};
use crate::web::middleware::auth::app_state;
use crate::web::middleware::body;
use crate::web::middleware::csrf;
use crate::web::middleware::request_options::DefaultOptions;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

/// Name of the field for the limit per customer.
const LIMIT: &str = "limit_per_user";

#[derive(Debug, Template)]
#[template(path = "item.html")]
struct ItemPage {
    layout: Layout,
    notice: Option<RejectionNotice>,
    item: Item,
    price: Cents,
    limit_typed: String,
    audit: ItemAudit,
    entries: Vec<(LedgerRow, EntryDetails)>,
    /// True if an entry was written under a fence.
    is_fenced: bool,
    older: Option<i64>,
    is_newest: bool,
    /// The idempotency key of the restock form.
    key: IdempotencyKey,
    form: ItemFormInput,
    errors: FormErrors,
}

/// Details of an entry beside its row.
#[derive(Debug)]
struct EntryDetails {
    /// True if the order is the visitor's own.
    own: bool,
    fence: Option<i64>,
    request: String,
    /// The other entries that read the same version, with their links.
    fork: Vec<(i64, String)>,
}

/// The admin's input.
#[derive(Debug, Default)]
struct ItemFormInput {
    delta: String,
    reason: String,
    /// The input for the limit, if it was rejected.
    limit: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct RestockForm {
    #[serde(default)]
    csrf: String,
    key: String,
    delta: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
pub struct LimitForm {
    #[serde(default)]
    csrf: String,
    #[serde(rename = "limit_per_user")]
    limit: String,
}

pub async fn show(
    request: HttpRequest,
    sku: web::Path<String>,
    query: web::Query<LedgerQuery>,
) -> HttpResult {
    let sku = body::parse_sku(sku.into_inner())?;
    page(&request, &sku, query.before, ItemFormInput::default(), FormErrors::default()).await
}

/// Changes the stock by hand, once per form.
pub async fn restock(
    state: web::Data<AppState>,
    request: HttpRequest,
    DefaultOptions(options): DefaultOptions,
    sku: web::Path<String>,
    form: web::Form<RestockForm>,
) -> HttpResult {
    let admin = csrf::check_admin_form(&request, &form.csrf).await?.caller.id;
    let sku = body::parse_sku(sku.into_inner())?;
    let RestockForm { key, delta, reason, .. } = form.into_inner();
    let key = IdempotencyKey::try_from(key).map_err(|why| Problem::field("key", why))?;
    let number = delta.trim().replace('−', "-");
    let rejection = match number.strip_prefix('+').unwrap_or(&number).parse() {
        Err(_) => {
            let why = "Type a whole number such as 20 or −3.".to_owned();
            Some(Rejection::Invalid("delta".into(), why))
        }
        Ok(units) => {
            let what = RestockRequest { delta: units, reason: reason.clone() };
            let restock = async || {
                let (sku, key) = (sku.clone(), key.clone());
                engine::restock(&state.shop, &options, admin, sku, &what, key).await
            };
            submit(restock).await?
        }
    };
    let form = ItemFormInput { delta, reason, ..ItemFormInput::default() };
    respond(&request, &sku, form, rejection).await
}

/// Sets the limit per customer; an empty input removes it.
pub async fn limit(
    state: web::Data<AppState>,
    request: HttpRequest,
    DefaultOptions(options): DefaultOptions,
    sku: web::Path<String>,
    form: web::Form<LimitForm>,
) -> HttpResult {
    let admin = csrf::check_admin_form(&request, &form.csrf).await?.caller.id;
    let sku = body::parse_sku(sku.into_inner())?;
    let input = form.into_inner().limit;
    let limit = match input.trim() {
        "" => Ok(None),
        number => number.parse().map(Some),
    };
    let rejection = match limit {
        Err(_) => {
            let why = "Type a whole number such as 2, or nothing.".to_owned();
            Some(Rejection::Invalid(LIMIT.into(), why))
        }
        Ok(limit) => {
            let (shop, options) = (&state.shop, &options);
            let set =
                async || engine::set_limit(shop, options, admin, sku.clone(), limit, None).await;
            match submit(set).await? {
                Some(Rejection::Invalid(..)) => {
                    let why = format!("Type 1 to {MAX_LIMIT}, or nothing: then there is no limit.");
                    Some(Rejection::Invalid(LIMIT.into(), why))
                }
                other => other,
            }
        }
    };
    let form = ItemFormInput { limit: Some(input), ..ItemFormInput::default() };
    respond(&request, &sku, form, rejection).await
}

/// Redirects to the item, or shows the page with the rejection of a form.
async fn respond(
    request: &HttpRequest,
    sku: &Sku,
    form: ItemFormInput,
    rejection: Option<Rejection>,
) -> HttpResult {
    match rejection {
        None => Ok(see_other(&format!("/items/{sku}"))),
        Some(Rejection::NotFound(what)) => Err(Problem::not_found(what)),
        Some(rejection) => page(request, sku, None, form, rejection.into()).await,
    }
}

async fn page(
    request: &HttpRequest,
    sku: &Sku,
    before: Option<i64>,
    form: ItemFormInput,
    errors: FormErrors,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let unknown = || Problem::not_found(format!("there is no item {sku}"));
    let item = catalog::item(shop, sku).await?.ok_or_else(unknown)?;
    let limit = i64::try_from(PAGE_LENGTH + 1).unwrap_or(i64::MAX);
    let entries = ledger::latest_stock_entries(shop, sku, before, limit).await?;
    let audit = audit::check_item(&shop.pool, sku).await?.ok_or_else(unknown)?;
    let layout = Layout::of(request).await?;
    let own = own_orders(shop, &layout, &entries).await?;
    let status = errors.status();
    let page = ItemPage {
        notice: errors.notice(),
        price: Cents(item.price_cents),
        older: ledger_rows::older_cursor(&entries),
        is_fenced: entries.iter().any(|entry| entry.fence.is_some()),
        entries: ledger_rows::ledger_rows(&entries, LedgerUnit::Stock)
            .zip(entry_details(sku, &entries, &audit, &own))
            .collect(),
        is_newest: before.is_none(),
        key: IdempotencyKey::generate(),
        limit_typed: form.limit.clone().unwrap_or_else(|| {
            item.limit_per_user.map_or_else(String::new, |limit| limit.to_string())
        }),
        item,
        audit,
        form,
        errors,
        layout,
    };
    html(status, &page)
}

async fn own_orders(
    shop: &Shop,
    layout: &Layout,
    entries: &[LedgerEntry],
) -> Result<BTreeSet<OrderId>, Problem> {
    let ids: Vec<OrderId> = entries.iter().filter_map(|entry| entry.order_id).collect();
    match &layout.caller {
        Some(caller) if !ids.is_empty() => {
            Ok(orders::owned_among(shop, caller.id, &ids).await?.into_iter().collect())
        }
        _ => Ok(BTreeSet::new()),
    }
}

/// Returns the details of the entries that are shown.
fn entry_details<'e>(
    sku: &'e Sku,
    entries: &'e [LedgerEntry],
    audit: &'e ItemAudit,
    own: &'e BTreeSet<OrderId>,
) -> impl Iterator<Item = EntryDetails> + 'e {
    let shown = &entries[..entries.len().min(PAGE_LENGTH)];
    // The link to an entry of another page leads to a page that begins with it.
    let link = move |seq: i64| match shown.iter().any(|entry| entry.seq == seq) {
        true => format!("#entry-{seq}"),
        false => format!("/items/{sku}?before={}#entry-{seq}", seq.saturating_add(1)),
    };
    shown.iter().map(move |entry| {
        let fork = audit.forks.iter().find(|fork| fork.entries.contains(&entry.seq));
        let others = fork.map(|fork| fork.entries.as_slice()).unwrap_or_default();
        let others = others.iter().filter(|seq| **seq != entry.seq);
        EntryDetails {
            own: entry.order_id.is_some_and(|order| own.contains(&order)),
            fence: entry.fence,
            request: short_id(&entry.request_id),
            fork: others.map(|seq| (*seq, link(*seq))).collect(),
        }
    })
}
