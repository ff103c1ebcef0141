//! The account: its balance, its ledger, and top-ups.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;

use super::entries::{self, Ledger, ON_ONE_PAGE, Row};
use super::frame::Frame;
use super::notice::Notice;
use super::words::{Moment as _, full_sentence, typed_cents};
use super::{copies, door, html, see_other};
use crate::shop::query::ledger;
use crate::shop::{Cents, Failure, IdempotencyKey, Rejection, UserId, engine};
use crate::web::auth::site;
use crate::web::conditions::Usual;
use crate::web::problems::Problem;
use crate::web::{HttpResult, Site};

#[derive(Debug, Template)]
#[template(path = "account.html")]
struct AccountPage {
    frame: Frame,
    notice: Option<Notice>,
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
    let user = door::signed_in(&request).await?.caller.id;
    page(&request, user, listing.before, Trouble::default()).await
}

/// Tops up the account, once per form.
pub async fn top_up(
    site: web::Data<Site>,
    request: HttpRequest,
    Usual(conditions): Usual,
    form: web::Form<TopUpForm>,
) -> HttpResult {
    let user = door::posted(&request, &form.csrf).await?.caller.id;
    let TopUpForm { key, amount, .. } = form.into_inner();
    let key = IdempotencyKey::try_from(key).map_err(|why| Problem::field("key", why))?;
    let rejection = match typed_cents(&amount) {
        Err(why) => Rejection::Invalid("amount_cents".into(), why),
        Ok(cents) => {
            let top_up =
                async || engine::top_up(&site.shop, &conditions, user, key.clone(), cents).await;
            match copies::settled(top_up).await {
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
            Trouble { amount, wrong: Some(full_sentence(&why)), problem: None }
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
    let shop = &site(request)?.shop;
    let limit = i64::try_from(ON_ONE_PAGE + 1).unwrap_or(i64::MAX);
    let entries = ledger::latest_balance_entries(shop, user, before, limit).await?;
    let balance = ledger::balance(shop, user).await?.unwrap_or(0);
    let status = match (&trouble.problem, &trouble.wrong) {
        (Some(problem), _) => problem.code(),
        (None, Some(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        (None, None) => StatusCode::OK,
    };
    let page = AccountPage {
        notice: trouble.problem.as_ref().map(Notice::from),
        balance: Cents(balance),
        older: entries::older(&entries),
        entries: entries::rows(&entries, Ledger::Money).collect(),
        key: IdempotencyKey::generate(),
        amount: trouble.amount,
        wrong: trouble.wrong,
        frame: Frame::of(request).await?,
    };
    html(status, &page)
}
