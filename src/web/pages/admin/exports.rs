//! The lists of these pages as CSV, whole and with the filters of the page.
//!
//! A file is streamed, a page of the list at a time, so a long one costs the memory of one page. If
//! a page cannot be read, the response breaks off: no file looks complete that is not.

use std::future::ready;

use actix_web::body::BodyStream;
use actix_web::web::{Bytes, Path};
use futures_util::{StreamExt as _, stream};

use super::items::ItemsQuery;
use super::log::LogFilter;
use super::orders::OrderFilter;
use super::users::UsersQuery;
use crate::web::api::admin_users::find;
use crate::web::middleware::{AdminUser, Query, body};
use crate::web::pages::csv::{self, CsvCell};
use crate::web::pages::format::FormatTime as _;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, State};
use holdfast_shop::model::{LedgerEntry, OrderStatus};
use holdfast_shop::query::order_search::{self, FoundOrder, OrderSearch};
use holdfast_shop::query::{admin_log, catalog, ledger, users};
use holdfast_shop::{Error, OrderId, Sku};

/// Entries that are read at once.
const PAGE_LENGTH: i64 = 1_000;

const ITEM_FIELDS: &str = "sku,name,name_zh,price_cents,stock,limit_per_user,hidden,description";
const ORDER_FIELDS: &str = "id,user,status,total_cents,created_at,paid_at,cancelled_at,\
    refunded_at,sku,name,name_zh,quantity,unit_price_cents";
const USER_FIELDS: &str = "user,admin,disabled_at,created_at,balance_cents,sessions";
const LOG_FIELDS: &str = "seq,at,admin,action,subject,user,before,after,request_id";
const LEDGER_FIELDS: &str = "seq,at,before,delta,after,reason,order_id,version,fence,request_id";

/// Lines of a file, and the cursor behind them if more follow.
type Part<C> = (String, Option<C>);

async fn export<C: 'static>(
    file_name: &str,
    fields: &str,
    read: impl AsyncFn(Option<C>) -> Result<Part<C>, Error> + 'static,
) -> HttpResult {
    // Before the response begins, so that an outage is reported as what it is.
    let (lines, more) = read(None).await?;
    let first = Bytes::from(csv::header(fields) + &lines);

    let rest = stream::try_unfold((read, more), |(read, cursor)| async move {
        let Some(cursor) = cursor else { return Ok(None) };
        let (lines, more) = read(Some(cursor)).await?;
        Ok::<_, Error>(Some((Bytes::from(lines), (read, more))))
    });
    let parts = stream::once(ready(Ok(first))).chain(rest);
    Ok(csv::download(file_name, BodyStream::new(parts)))
}

pub(crate) async fn items(state: State, _: AdminUser, query: Query<ItemsQuery>) -> HttpResult {
    let search = query.read()?.search;
    export("holdfast-items.csv", ITEM_FIELDS, async move |after: Option<Sku>| {
        let limit = PAGE_LENGTH + 1;
        let mut items = catalog::all_items(&state.shop, &search, after.as_ref(), limit).await?;
        let more = cut_page(&mut items, PAGE_LENGTH, |item| item.sku.clone());

        let lines = items.into_iter().map(|item| {
            csv::line(&[
                CsvCell::text(item.sku.as_str()),
                CsvCell::text(item.name),
                item.name_zh.map_or(CsvCell::Empty, CsvCell::text),
                CsvCell::plain(item.price_cents),
                CsvCell::plain(item.stock),
                CsvCell::maybe(item.limit_per_user),
                CsvCell::plain(item.hidden),
                CsvCell::text(item.description),
            ])
        });
        Ok((lines.collect(), more))
    })
    .await
}

/// A line per line of an order, with the total in the first one: the sum of the column is that of
/// the orders.
pub(crate) async fn orders(state: State, _: AdminUser, filter: Query<OrderFilter>) -> HttpResult {
    const FILE_NAME: &str = "holdfast-orders.csv";
    match filter.read()?.search(&state.shop).await? {
        Some(search) => {
            export(FILE_NAME, ORDER_FIELDS, async move |after| {
                orders_part(&state, &search, after).await
            })
            .await
        }
        None => Ok(csv::download(FILE_NAME, csv::header(ORDER_FIELDS))),
    }
}

async fn orders_part(
    state: &State,
    search: &OrderSearch,
    after: Option<OrderId>,
) -> Result<Part<OrderId>, Error> {
    let found = order_search::search(&state.shop, search, after, PAGE_LENGTH).await?;

    let ids: Vec<OrderId> = found.orders.iter().map(|found| found.order.id).collect();
    let returned = ledger::returned_at(&state.shop, &ids).await?;

    let mut lines = String::new();
    for FoundOrder { user, order } in &found.orders {
        let returned_as = |status: OrderStatus| {
            let at = returned.get(&order.id).filter(|_| order.status == status);
            CsvCell::maybe(at.map(|at| at.rfc3339()))
        };
        for (place, line) in order.lines.iter().enumerate() {
            lines += &csv::line(&[
                CsvCell::plain(order.id),
                CsvCell::text(user.as_str()),
                CsvCell::plain(order.status.name()),
                CsvCell::maybe((place == 0).then_some(order.total_cents)),
                CsvCell::plain(order.created_at.rfc3339()),
                CsvCell::maybe(order.paid_at.map(|at| at.rfc3339())),
                returned_as(OrderStatus::Cancelled),
                returned_as(OrderStatus::Refunded),
                CsvCell::text(line.sku.as_str()),
                CsvCell::text(line.names.name.as_str()),
                line.names.name_zh.as_deref().map_or(CsvCell::Empty, CsvCell::text),
                CsvCell::plain(line.quantity),
                CsvCell::plain(line.unit_price_cents),
            ]);
        }
    }
    Ok((lines, found.more))
}

pub(crate) async fn users(state: State, _: AdminUser, query: Query<UsersQuery>) -> HttpResult {
    let search = query.read()?.search;
    export("holdfast-users.csv", USER_FIELDS, async move |after: Option<String>| {
        let after = after.unwrap_or_default();
        let mut found = users::list(&state.shop, &search, &after, PAGE_LENGTH + 1).await?;
        let more = cut_page(&mut found, PAGE_LENGTH, |account| account.user.clone());

        let lines = found.into_iter().map(|account| {
            csv::line(&[
                CsvCell::text(account.user),
                CsvCell::plain(account.admin),
                CsvCell::maybe(account.disabled_at.map(|at| at.rfc3339())),
                CsvCell::plain(account.created_at.rfc3339()),
                CsvCell::plain(account.balance_cents),
                CsvCell::plain(account.sessions),
            ])
        });
        Ok((lines.collect(), more))
    })
    .await
}

pub(crate) async fn log(state: State, _: AdminUser, filter: Query<LogFilter>) -> HttpResult {
    let subject = filter.read()?.subject(&state.shop).await?;
    export("holdfast-log.csv", LOG_FIELDS, async move |before: Option<i64>| {
        let subject = subject.as_deref();
        let mut log = admin_log::changes(&state.shop, subject, before, PAGE_LENGTH + 1).await?;
        let more = cut_page(&mut log, PAGE_LENGTH, |entry| entry.seq);

        let lines = log.into_iter().map(|entry| {
            csv::line(&[
                CsvCell::plain(entry.seq),
                CsvCell::plain(entry.at.rfc3339()),
                CsvCell::text(entry.admin),
                CsvCell::plain(entry.action.name()),
                CsvCell::text(entry.subject),
                entry.user.map_or(CsvCell::Empty, CsvCell::text),
                CsvCell::text(entry.before.to_string()),
                CsvCell::text(entry.after.to_string()),
                CsvCell::plain(entry.request_id),
            ])
        });
        Ok((lines.collect(), more))
    })
    .await
}

pub(crate) async fn item_ledger(state: State, _: AdminUser, sku: Path<String>) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    if catalog::item(&state.shop, &sku).await?.is_none() {
        return Err(body::unknown_item(&sku));
    }
    let file_name = format!("holdfast-ledger-{sku}.csv");
    export(&file_name, LEDGER_FIELDS, async move |after: Option<i64>| {
        let after = after.unwrap_or(0);
        Ok(ledger_part(ledger::stock_entries(&state.shop, &sku, after, PAGE_LENGTH + 1).await?))
    })
    .await
}

pub(crate) async fn user_ledger(state: State, _: AdminUser, name: Path<String>) -> HttpResult {
    let (user, account) = find(&state, &name).await?;
    let file_name = format!("holdfast-ledger-{}.csv", account.user);
    export(&file_name, LEDGER_FIELDS, async move |after: Option<i64>| {
        let after = after.unwrap_or(0);
        Ok(ledger_part(ledger::balance_entries(&state.shop, user, after, PAGE_LENGTH + 1).await?))
    })
    .await
}

fn ledger_part(mut entries: Vec<LedgerEntry>) -> Part<i64> {
    let more = cut_page(&mut entries, PAGE_LENGTH, |entry| entry.seq);
    let lines = entries.into_iter().map(|entry| {
        csv::line(&[
            CsvCell::plain(entry.seq),
            CsvCell::plain(entry.at.rfc3339()),
            CsvCell::plain(entry.before),
            CsvCell::plain(entry.delta),
            CsvCell::plain(entry.after),
            CsvCell::text(entry.reason),
            CsvCell::maybe(entry.order_id),
            CsvCell::plain(entry.version),
            CsvCell::maybe(entry.fence),
            CsvCell::plain(entry.request_id),
        ])
    });
    (lines.collect(), more)
}
