//! The account: its balance, its ledger, and top-ups.

use actix_web::HttpRequest;
use actix_web::web::Form;
use askama::Template;
use serde::Deserialize;

use super::duplicate_submit::submit;
use super::form_errors::FormErrors;
use super::format::{FormatMoney as _, FormatTime as _, parse_cents};
use super::language;
use super::layout::Layout;
use super::ledger_table::{LedgerTable, PAGE_LENGTH};
use super::respond::html;
use crate::shop::query::ledger;
use crate::shop::{Cents, IdempotencyKey, RequestOptions, UserId, engine};
use crate::web::middleware::{FormFields, Query, SignedInUser, csrf};
use crate::web::{HttpResult, State, app_state, see_other};

/// Name of the command's field for the amount.
const AMOUNT: &str = "amount_cents";

#[derive(Debug, Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    balance: Cents,
    /// While the lab is on.
    lab_balance: Option<Cents>,
    ledger: LedgerTable,
    key: IdempotencyKey,
    amount: String,
    /// The page to go back to after a top-up, on this site; empty for none.
    next: String,
    errors: FormErrors,
}

#[derive(Debug, Deserialize)]
pub struct AccountQuery {
    /// Entries older than this one.
    before: Option<i64>,
    #[serde(default)]
    next: String,
}

/// The input of the form.
#[derive(Default)]
struct TopUpInput {
    amount: String,
    next: String,
}

pub async fn show(
    request: HttpRequest,
    user: SignedInUser,
    query: Query<AccountQuery>,
) -> HttpResult {
    let AccountQuery { before, next } = query.read()?;
    let input = TopUpInput { next: order_page(&next).to_owned(), ..TopUpInput::default() };
    page(&request, user.caller.id, before, input, FormErrors::default()).await
}

/// Returns `next` if it is the page of an order.
fn order_page(next: &str) -> &str {
    if next.starts_with("/orders/") { csrf::local_path(next) } else { "" }
}

/// Tops up the account, once per form.
pub async fn top_up(
    state: State,
    request: HttpRequest,
    options: RequestOptions,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?.caller.id;
    let (key, amount) = (form.key("key")?, form.required("amount")?);
    let (language, next) = (language::of_request(&request), order_page(form.text("next")));
    let errors = match parse_cents(amount, language) {
        Err(why) => FormErrors::field(AMOUNT, &why),
        Ok(cents) => {
            submit(async || engine::top_up(&state.shop, &options, user, key.clone(), cents).await)
                .await?
                .explain(AMOUNT, &language.text("shop-amount-range"))
        }
    };
    if errors.is_empty() {
        return Ok(see_other(if next.is_empty() { "/account" } else { next }));
    }
    let input = TopUpInput { amount: amount.to_owned(), next: next.to_owned() };
    page(&request, user, None, input, errors).await
}

async fn page(
    request: &HttpRequest,
    user: UserId,
    before: Option<i64>,
    input: TopUpInput,
    errors: FormErrors,
) -> HttpResult {
    let state = app_state(request)?;
    let shop = &state.shop;
    let balances = ledger::balances(shop, user).await?;
    let entries = ledger::latest_balance_entries(shop, user, before, PAGE_LENGTH + 1).await?;
    let page = AccountPage {
        balance: Cents(balances.own_cents),
        lab_balance: state.lab.then_some(Cents(balances.lab_cents)),
        ledger: LedgerTable::new(entries, true, "/account".to_owned(), before),
        key: IdempotencyKey::generate(),
        amount: input.amount,
        next: input.next,
        layout: Layout::of(request).await?,
        errors,
    };
    html(page.errors.status(), &page)
}
