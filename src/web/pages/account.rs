//! The account: its balance, its ledger, and top-ups.

use actix_web::HttpRequest;
use actix_web::web::Form;
use askama::Template;

use super::duplicate_submit::submit;
use super::form_errors::FormErrors;
use super::format::{FormatTime as _, parse_cents};
use super::layout::Layout;
use super::ledger_table::{LedgerQuery, LedgerTable, PAGE_LENGTH};
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
    ledger: LedgerTable,
    key: IdempotencyKey,
    amount: String,
    errors: FormErrors,
}

pub async fn show(
    request: HttpRequest,
    user: SignedInUser,
    query: Query<LedgerQuery>,
) -> HttpResult {
    page(&request, user.caller.id, query.read()?.before, "", FormErrors::default()).await
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
    let errors = match parse_cents(amount) {
        Err(why) => FormErrors::field(AMOUNT, &why),
        Ok(cents) => {
            submit(async || engine::top_up(&state.shop, &options, user, key.clone(), cents).await)
                .await?
                .explain("Choose 0.01 to 10,000,000.00.")
        }
    };
    if errors.is_empty() {
        return Ok(see_other("/account"));
    }
    page(&request, user, None, amount, errors).await
}

async fn page(
    request: &HttpRequest,
    user: UserId,
    before: Option<i64>,
    amount: &str,
    errors: FormErrors,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let entries = ledger::latest_balance_entries(shop, user, before, PAGE_LENGTH + 1).await?;
    let page = AccountPage {
        balance: Cents(ledger::balance(shop, user).await?.unwrap_or(0)),
        ledger: LedgerTable::new(entries, true, "/account".to_owned(), before),
        key: IdempotencyKey::generate(),
        amount: amount.to_owned(),
        layout: Layout::of(request).await?,
        errors,
    };
    html(page.errors.status(), &page)
}
