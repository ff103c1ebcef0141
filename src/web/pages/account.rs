//! The account: its balance, its ledger, and top-ups; the user's password and sessions.

use actix_web::HttpRequest;
use actix_web::web::Form;
use askama::Template;
use serde::Deserialize;
use uuid::Uuid;

use super::format::{FormatTime as _, parse_cents};
use super::layout::{Layout, language_of};
use super::ledger_table::{LedgerTable, PAGE_LENGTH};
use super::place_order::submit;
use super::rejection::FormErrors;
use super::respond::html;
use super::sign_in::password_rule;
use crate::web::middleware::{
    DefaultContext, FormFields, Query, SignedInUser, begin_command, csrf, cursor,
};
use crate::web::paging::cut_page;
use crate::web::{HttpResult, Problem, State, app_state, see_other};
use holdfast_base::messages::message;
use holdfast_shop::query::ledger;
use holdfast_shop::sessions::{self, Session, SessionId};
use holdfast_shop::users::{self, PasswordChange};
use holdfast_shop::{Cents, Failure, IdempotencyKey, Rejection, UserId, engine};

const LISTED_SESSIONS: i64 = 25;
const AMOUNT: &str = "amount_cents";

#[derive(Debug, Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    balance: Cents,
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
    #[serde(default, deserialize_with = "cursor")]
    before: Option<i64>,
    #[serde(default)]
    next: String,
}

pub(crate) async fn show(
    request: HttpRequest,
    user: SignedInUser,
    query: Query<AccountQuery>,
) -> HttpResult {
    let AccountQuery { before, next } = query.read()?;
    let next = order_page(&next);
    page(&request, user.caller.id, before, "", next, FormErrors::default()).await
}

fn order_page(next: &str) -> &str {
    if next.starts_with("/orders/") { csrf::local_path(next) } else { "" }
}

pub(crate) async fn top_up(
    state: State,
    request: HttpRequest,
    context: DefaultContext,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?.caller.id;
    let (key, amount) = (form.key("key")?, form.required("amount")?);
    let (language, next) = (language_of(&request), order_page(form.text("next")));

    let errors = match parse_cents(amount) {
        None => FormErrors::field(AMOUNT, &language.text("shop-amount-unclear")),
        Some(cents) => {
            let top_up =
                async || engine::top_up(&state.shop, &context, user, key.clone(), cents).await;
            submit(language, top_up).await?.explain(AMOUNT, &language.text("shop-amount-range"))
        }
    };

    if errors.is_empty() {
        return Ok(see_other(if next.is_empty() { "/account" } else { next }));
    }
    page(&request, user, None, amount, next, errors).await
}

async fn page(
    request: &HttpRequest,
    user: UserId,
    before: Option<i64>,
    amount: &str,
    next: &str,
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
        amount: amount.to_owned(),
        next: next.to_owned(),
        layout: Layout::of(request).await?,
        errors,
    };

    html(page.errors.status(), &page)
}

#[derive(Debug, Template)]
#[template(path = "security.html")]
struct SecurityPage {
    layout: Layout,
    sessions: Vec<Session>,
    more: Option<Uuid>,
    password_rule: String,
    is_changed: bool,
    errors: FormErrors,
}

#[derive(Debug, Deserialize)]
pub struct SecurityQuery {
    #[serde(default, deserialize_with = "cursor")]
    after: Option<Uuid>,
    changed: Option<String>,
}

pub(crate) async fn show_security(
    request: HttpRequest,
    user: SignedInUser,
    query: Query<SecurityQuery>,
) -> HttpResult {
    let query = query.read()?;
    let (after, is_changed) = (query.after.map(SessionId), query.changed.is_some());
    security_page(&request, &user, after, is_changed, FormErrors::default()).await
}

pub(crate) async fn change_password(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?;
    let (old, new) = (form.required("old")?.to_owned(), form.required("new")?.to_owned());

    state.rate_limits.check_sign_in(&request, user.caller.account_name()).await?;
    let (shop, caller, change) = (&state.shop, user.caller.id, PasswordChange { old, new });
    let min_length = state.min_password_length;

    begin_command(&request);
    match users::change_password(shop, caller, &user.token, change, min_length).await {
        Ok(()) => {
            state.sessions.invalidate_user(caller)?;
            Ok(see_other("/account/security?changed=on"))
        }
        Err(Failure::Rejected(rejection @ Rejection::Invalid(..))) => {
            let language = language_of(&request);
            let errors = FormErrors::of_rejection(rejection, language)
                .explain("old", &language.text("shop-password-wrong"))
                .explain("new", &password_rule(language, min_length));
            security_page(&request, &user, None, false, errors).await
        }
        Err(failure) => Err(failure.into()),
    }
}

pub(crate) async fn end_session(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?;
    let id = Uuid::parse_str(form.required("session")?)
        .map_err(|_| Problem::field("session", message!("problem-no-session-id")))?;
    // A session that has ended already is no problem for a person.
    if sessions::end(&state.shop, user.caller.id, SessionId(id)).await? {
        state.sessions.invalidate_user(user.caller.id)?;
    }
    Ok(see_other("/account/security"))
}

async fn security_page(
    request: &HttpRequest,
    user: &SignedInUser,
    after: Option<SessionId>,
    is_changed: bool,
    errors: FormErrors,
) -> HttpResult {
    let state = app_state(request)?;
    let caller = user.caller.id;
    let mut sessions =
        sessions::list(&state.shop, caller, &user.token, after, LISTED_SESSIONS + 1).await?;
    let layout = Layout::of(request).await?;

    let page = SecurityPage {
        more: cut_page(&mut sessions, LISTED_SESSIONS, |session| session.id.0),
        sessions,
        password_rule: password_rule(layout.language, state.min_password_length),
        is_changed,
        layout,
        errors,
    };

    html(page.errors.status(), &page)
}
