//! The account: its balance, its ledger, and top-ups.

use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::duplicate_submit::submit;
use super::form_errors::FormErrors;
use super::format::{FormatTime as _, parse_cents};
use super::layout::Layout;
use super::ledger_rows::{self, LedgerQuery, LedgerRow, LedgerUnit, PAGE_LENGTH};
use super::rejection::RejectionNotice;
use super::{html, see_other};
use crate::shop::query::ledger;
use crate::shop::{Cents, IdempotencyKey, Rejection, UserId, engine};
use crate::web::middleware::auth::app_state;
use crate::web::middleware::csrf;
use crate::web::middleware::request_options::DefaultOptions;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

/// Name of the field for the amount.
const AMOUNT: &str = "amount_cents";

#[derive(Debug, Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    notice: Option<RejectionNotice>,
    balance: Cents,
    entries: Vec<LedgerRow>,
    older: Option<i64>,
    key: IdempotencyKey,
    amount: String,
    wrong: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct TopUpForm {
    #[serde(default)]
    csrf: String,
    key: String,
    amount: String,
}

/// Shows the account.
pub async fn show(request: HttpRequest, query: web::Query<LedgerQuery>) -> HttpResult {
    let user = csrf::require_user(&request).await?.caller.id;
    page(&request, user, query.before, String::new(), FormErrors::default()).await
}

/// Tops up the account, once per form.
pub async fn top_up(
    state: web::Data<AppState>,
    request: HttpRequest,
    DefaultOptions(options): DefaultOptions,
    form: web::Form<TopUpForm>,
) -> HttpResult {
    let user = csrf::check_form(&request, &form.csrf).await?.caller.id;
    let TopUpForm { key, amount, .. } = form.into_inner();
    let key = IdempotencyKey::try_from(key).map_err(|why| Problem::field("key", why))?;
    let rejection = match parse_cents(&amount) {
        Err(why) => Some(Rejection::Invalid(AMOUNT.into(), why)),
        Ok(cents) => {
            let top_up =
                async || engine::top_up(&state.shop, &options, user, key.clone(), cents).await;
            match submit(top_up).await? {
                Some(Rejection::Invalid(..)) => {
                    let why = "Choose 0.01 to 10,000,000.00.".to_owned();
                    Some(Rejection::Invalid(AMOUNT.into(), why))
                }
                other => other,
            }
        }
    };
    match rejection {
        None => Ok(see_other("/account")),
        Some(rejection) => page(&request, user, None, amount, rejection.into()).await,
    }
}

async fn page(
    request: &HttpRequest,
    user: UserId,
    before: Option<i64>,
    amount: String,
    errors: FormErrors,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let limit = i64::try_from(PAGE_LENGTH + 1).unwrap_or(i64::MAX);
    let entries = ledger::latest_balance_entries(shop, user, before, limit).await?;
    let balance = ledger::balance(shop, user).await?.unwrap_or(0);
    let page = AccountPage {
        notice: errors.notice(),
        balance: Cents(balance),
        older: ledger_rows::older_cursor(&entries),
        entries: ledger_rows::ledger_rows(&entries, LedgerUnit::Money).collect(),
        key: IdempotencyKey::generate(),
        amount,
        wrong: errors.of(AMOUNT).map(str::to_owned),
        layout: Layout::of(request).await?,
    };
    html(errors.status(), &page)
}
