//! The password and the sessions of the signed-in user.

use actix_web::HttpRequest;
use actix_web::web::Form;
use askama::Template;
use serde::Deserialize;
use uuid::Uuid;

use super::form_errors::FormErrors;
use super::format::FormatTime as _;
use super::language;
use super::layout::Layout;
use super::respond::html;
use super::sign_in::password_rule;
use crate::shop::sessions::{self, Session, SessionId};
use crate::shop::users::{self, PasswordChange};
use crate::shop::{Failure, Rejection};
use crate::web::middleware::{FormFields, Query, SignedInUser, begin_command, csrf};
use crate::web::paging::cut_page;
use crate::web::{HttpResult, Problem, State, app_state, see_other};

const PAGE_LENGTH: i64 = 25;

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
    after: Option<Uuid>,
    /// Present after the password was changed.
    changed: Option<String>,
}

pub async fn show(
    request: HttpRequest,
    user: SignedInUser,
    query: Query<SecurityQuery>,
) -> HttpResult {
    let query = query.read()?;
    let (after, is_changed) = (query.after.map(SessionId), query.changed.is_some());
    page(&request, &user, after, is_changed, FormErrors::default()).await
}

pub async fn change_password(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?;
    let (old, new) = (form.required("old")?.to_owned(), form.required("new")?.to_owned());
    state.rate_limits.check_sign_in(&request, Some(&user.caller.name)).await?;
    let (shop, caller, change) = (&state.shop, user.caller.id, PasswordChange { old, new });
    let min_length = state.min_password_length;
    begin_command(&request);
    match users::change_password(shop, caller, &user.token, change, min_length).await {
        Ok(()) => {
            state.sessions.invalidate_user(caller)?;
            Ok(see_other("/account/security?changed=on"))
        }
        Err(Failure::Rejected(rejection @ Rejection::Invalid(..))) => {
            let language = language::of_request(&request);
            let errors = FormErrors::from(rejection)
                .explain("old", &language.text("shop-password-wrong"))
                .explain("new", &password_rule(language, min_length));
            page(&request, &user, None, false, errors).await
        }
        Err(failure) => Err(failure.into()),
    }
}

pub async fn end_session(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?;
    let id = Uuid::parse_str(form.required("session")?)
        .map_err(|_| Problem::field("session", "it is no id of a session"))?;
    // A session that has ended already is no problem for a person.
    if sessions::end(&state.shop, user.caller.id, SessionId(id)).await? {
        state.sessions.invalidate_user(user.caller.id)?;
    }
    Ok(see_other("/account/security"))
}

async fn page(
    request: &HttpRequest,
    user: &SignedInUser,
    after: Option<SessionId>,
    is_changed: bool,
    errors: FormErrors,
) -> HttpResult {
    let state = app_state(request)?;
    let caller = user.caller.id;
    let mut sessions =
        sessions::list(&state.shop, caller, &user.token, after, PAGE_LENGTH + 1).await?;
    let layout = Layout::of(request).await?;
    let page = SecurityPage {
        more: cut_page(&mut sessions, PAGE_LENGTH, |session| session.id.0),
        sessions,
        password_rule: password_rule(layout.language, state.min_password_length),
        is_changed,
        layout,
        errors,
    };
    html(page.errors.status(), &page)
}
