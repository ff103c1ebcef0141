//! The account: its balance, its ledger, and top-ups.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::format::{FormatTime as _, parse_cents, sentence};
use super::layout::Layout;
use super::ledger_rows::{self, LedgerRow, LedgerUnit, PAGE_LENGTH};
use super::rejection::RejectionNotice;
use super::{duplicate_submit, html, see_other};
use crate::shop::query::ledger;
use crate::shop::{Cents, Failure, IdempotencyKey, Rejection, UserId, engine};
use crate::web::middleware::auth::app_state;
use crate::web::middleware::csrf;
use crate::web::middleware::request_options::DefaultOptions;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

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

/// The query: entries older than `before`.
#[derive(Debug, Deserialize)]
pub struct LedgerQuery {
    before: Option<i64>,
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
    page(&request, user, query.before, TopUpErrors::default()).await
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
        Err(why) => Rejection::Invalid("amount_cents".into(), why),
        Ok(cents) => {
            let top_up =
                async || engine::top_up(&state.shop, &options, user, key.clone(), cents).await;
            match duplicate_submit::execute_once(top_up).await {
                // The key was used: the form was sent and executed before.
                Ok(_) | Err(Failure::Rejected(Rejection::KeyUsed { .. })) => {
                    return Ok(see_other("/account"));
                }
                Err(Failure::Rejected(Rejection::Invalid(..))) => Rejection::Invalid(
                    "amount_cents".into(),
                    "Choose 0.01 to 10,000,000.00.".to_owned(),
                ),
                Err(Failure::Rejected(rejection)) => rejection,
                Err(Failure::Error(error)) => return Err(error.into()),
            }
        }
    };
    let errors = match rejection {
        Rejection::Invalid(_, why) => {
            TopUpErrors { amount, wrong: Some(sentence(&why)), problem: None }
        }
        other => TopUpErrors { amount, wrong: None, problem: Some(other.into()) },
    };
    page(&request, user, None, errors).await
}

#[derive(Debug, Default)]
struct TopUpErrors {
    amount: String,
    wrong: Option<String>,
    problem: Option<Problem>,
}

async fn page(
    request: &HttpRequest,
    user: UserId,
    before: Option<i64>,
    errors: TopUpErrors,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let limit = i64::try_from(PAGE_LENGTH + 1).unwrap_or(i64::MAX);
    let entries = ledger::latest_balance_entries(shop, user, before, limit).await?;
    let balance = ledger::balance(shop, user).await?.unwrap_or(0);
    let status = match (&errors.problem, &errors.wrong) {
        (Some(problem), _) => problem.code(),
        (None, Some(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        (None, None) => StatusCode::OK,
    };
    let page = AccountPage {
        notice: errors.problem.as_ref().map(RejectionNotice::from),
        balance: Cents(balance),
        older: ledger_rows::older_cursor(&entries),
        entries: ledger_rows::ledger_rows(&entries, LedgerUnit::Money).collect(),
        key: IdempotencyKey::mint(),
        amount: errors.amount,
        wrong: errors.wrong,
        layout: Layout::of(request).await?,
    };
    html(status, &page)
}
