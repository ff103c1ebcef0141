//! The users: a list, and one user with the account's ledger and what an admin may change.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use serde::Deserialize;

use super::log::LogRow;
use super::sender::{SentForm, opened_by_another};
use crate::web::api::admin_users::find;
use crate::web::middleware::{
    AdminUser, FormFields, Query, SignedInUser, begin_command, csrf, cursor,
};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::{Layout, language_of};
use crate::web::pages::ledger_table::{self, LedgerTable, ORDERS_OF_ALL};
use crate::web::pages::place_order::submit;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::pages::sign_in::password_rule;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, State, see_other};
use holdfast_shop::query::users::UserAccount;
use holdfast_shop::query::{admin_log, ledger, users};
use holdfast_shop::user_admin::{self, UserCommand};
use holdfast_shop::{Cents, Execution, Failure};

const PAGE_LENGTH: i64 = 50;
/// The newest changes of a user that the page shows.
const LOGGED: i64 = 10;

#[derive(Debug, Template)]
#[template(path = "admin_users.html")]
struct UsersPage {
    layout: Layout,
    search: String,
    users: Vec<UserAccount>,
    more: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UsersQuery {
    pub(super) search: String,
    after: String,
}

pub(crate) async fn list(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    query: Query<UsersQuery>,
) -> HttpResult {
    let UsersQuery { search, after } = query.read()?;
    let mut found = users::list(&state.shop, &search, &after, PAGE_LENGTH + 1).await?;
    let more = cut_page(&mut found, PAGE_LENGTH, |account| account.user.clone());
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &UsersPage { layout, search, users: found, more })
}

#[derive(Template)]
#[template(path = "admin_user.html")]
struct UserPage {
    layout: Layout,
    account: UserAccount,
    /// True for the admin who asks.
    is_self: bool,
    /// The action that was done, by the name of its sentence.
    done: Option<&'static str>,
    ledger: LedgerTable,
    log: Vec<LogRow>,
    /// True if the log has more.
    has_older: bool,
    password_rule: String,
    form: SentForm,
}

/// The changes after which the page says what was done.
const DONE: [&str; 4] = ["disable", "enable", "sessions", "password"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UserQuery {
    #[serde(deserialize_with = "cursor")]
    before: Option<i64>,
    done: String,
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    admin: AdminUser,
    name: Path<String>,
    query: Query<UserQuery>,
) -> HttpResult {
    let query = query.read()?;
    page(&state, &request, &admin.0, &name, query, FormErrors::default()).await
}

type UserForm = (State, HttpRequest, Path<String>, Form<FormFields>);

pub(crate) async fn set_disabled(parts: UserForm) -> HttpResult {
    // Before anything is said of the form.
    csrf::check_admin_form(&parts.1, parts.3.csrf()).await?;
    let disabled = parts.3.required("disabled")? == "yes";
    let done = if disabled { "disable" } else { "enable" };
    execute(parts, done, async |state, command, _| {
        user_admin::set_disabled(&state.shop, command, disabled).await
    })
    .await
}

pub(crate) async fn end_sessions(parts: UserForm) -> HttpResult {
    execute(parts, "sessions", async |state, command, _| {
        user_admin::end_sessions(&state.shop, command).await
    })
    .await
}

pub(crate) async fn set_password(parts: UserForm) -> HttpResult {
    execute(parts, "password", async |state, command, form| {
        let (new, min_length) = (form.text("new").to_owned(), state.min_password_length);
        user_admin::reset_password(&state.shop, command, new, min_length).await
    })
    .await
}

/// Executes the command of a form, once per key, and redirects to the user's page, which says what
/// was done.
async fn execute(
    (state, request, name, form): UserForm,
    done: &'static str,
    change: impl AsyncFn(&State, &UserCommand, &FormFields) -> Result<Execution, Failure>,
) -> HttpResult {
    let admin = csrf::check_admin_form(&request, form.csrf()).await?;
    if let Some(errors) = opened_by_another(&form, &admin.caller) {
        return page(&state, &request, &admin, &name, UserQuery::default(), errors).await;
    }
    let key = form.key("key")?;
    let (user, account) = find(&state, &name).await?;
    let request_id = begin_command(&request);

    let name = account.user;
    let command = UserCommand { admin: admin.caller.id, user, name, key, request_id };
    let language = language_of(&request);
    let rule = password_rule(language, state.min_password_length);
    let errors = submit(language, async || change(&state, &command, &form).await).await?;
    state.sessions.invalidate_user(user)?;

    if errors.is_empty() {
        return Ok(see_other(&format!("/admin/users/{}?done={done}", command.name)));
    }
    let errors = errors.explain("new", &rule);
    page(&state, &request, &admin, &command.name, UserQuery::default(), errors).await
}

async fn page(
    state: &State,
    request: &HttpRequest,
    admin: &SignedInUser,
    name: &str,
    query: UserQuery,
    errors: FormErrors,
) -> HttpResult {
    let shop = &state.shop;
    let (user, account) = find(state, name).await?;
    let limit = ledger_table::PAGE_LENGTH + 1;
    let entries = ledger::latest_balance_entries(shop, user, query.before, limit).await?;
    let subject = user.0.to_string();
    let mut log = admin_log::changes(shop, Some(&subject), None, LOGGED + 1).await?;
    let has_older = cut_page(&mut log, LOGGED, |entry| entry.seq).is_some();

    let layout = Layout::of(request).await?;
    let address = format!("/admin/users/{}", account.user);
    let mut ledger = LedgerTable::new(entries, true, address.clone(), query.before);
    ledger.link_orders(ORDERS_OF_ALL, |_| true);
    let page = UserPage {
        is_self: user == admin.caller.id,
        account,
        done: DONE.into_iter().find(|done| *done == query.done),
        ledger,
        log: log.into_iter().map(|entry| LogRow::new(entry, layout.language)).collect(),
        has_older,
        password_rule: password_rule(layout.language, state.min_password_length),
        // Without its fields: a password is not shown again.
        form: SentForm { errors, ..SentForm::default() },
        layout: Layout { path: address, ..layout },
    };
    html(page.form.errors.status(), &page)
}
