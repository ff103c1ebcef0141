//! The account: its balance, its ledger, and top-ups.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::format::{FormatTime as _, parse_cents, sentence};
use super::layout::Layout;
use super::ledger_rows::{self, Ledger, ON_ONE_PAGE, Row};
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
    entries: Vec<Row>,
    older: Option<i64>,
    key: IdempotencyKey,
    amount: String,
    wrong: Option<String>,
}

/// The query: entries older than `before`.
#[derive(Debug, Deserialize)]
pub struct Listing {
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
pub async fn show(request: HttpRequest, listing: web::Query<Listing>) -> HttpResult {
    let user = csrf::require_user(&request).await?.caller.id;
    page(&request, user, listing.before, Trouble::default()).await
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
            match duplicate_submit::settled(top_up).await {
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
    let trouble = match rejection {
        Rejection::Invalid(_, why) => {
            Trouble { amount, wrong: Some(sentence(&why)), problem: None }
        }
        other => Trouble { amount, wrong: None, problem: Some(other.into()) },
    };
    page(&request, user, None, trouble).await
}

#[derive(Debug, Default)]
struct Trouble {
    amount: String,
    wrong: Option<String>,
    problem: Option<Problem>,
}

async fn page(
    request: &HttpRequest,
    user: UserId,
    before: Option<i64>,
    trouble: Trouble,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let limit = i64::try_from(ON_ONE_PAGE + 1).unwrap_or(i64::MAX);
    let entries = ledger::latest_balance_entries(shop, user, before, limit).await?;
    let balance = ledger::balance(shop, user).await?.unwrap_or(0);
    let status = match (&trouble.problem, &trouble.wrong) {
        (Some(problem), _) => problem.code(),
        (None, Some(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        (None, None) => StatusCode::OK,
    };
    let page = AccountPage {
        notice: trouble.problem.as_ref().map(RejectionNotice::from),
        balance: Cents(balance),
        older: ledger_rows::older(&entries),
        entries: ledger_rows::rows(&entries, Ledger::Money).collect(),
        key: IdempotencyKey::mint(),
        amount: trouble.amount,
        wrong: trouble.wrong,
        layout: Layout::of(request).await?,
    };
    html(status, &page)
}
