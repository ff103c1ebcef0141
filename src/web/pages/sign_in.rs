//! Signing in, signing up and signing out.

use actix_web::http::StatusCode;
use actix_web::web::Form;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::Deserialize;

use super::form_errors::FormErrors;
use super::layout::Layout;
use super::respond::{html, set_cookie};
use crate::shop::sessions;
use crate::shop::users::{self, Credentials};
use crate::shop::{Failure, Rejection};
use crate::web::middleware::{FormFields, Query, SESSION_COOKIE, begin_command, csrf, find_caller};
use crate::web::{HttpResult, Problem, State, app_state, see_other};

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    layout: Layout,
    next: String,
    user: String,
    wrong: bool,
}

#[derive(Debug, Template)]
#[template(path = "sign_up.html")]
struct SignUpPage {
    layout: Layout,
    next: String,
    user: String,
    password_rule: String,
    errors: FormErrors,
}

#[derive(Debug, Deserialize)]
pub struct ReturnQuery {
    /// The address to go to after signing in, on this site.
    #[serde(default)]
    next: String,
}

pub async fn show(request: HttpRequest, query: Query<ReturnQuery>) -> HttpResult {
    let next = csrf::local_path(&query.read()?.next).to_owned();
    let (layout, user) = (Layout::of(&request).await?, String::new());
    html(StatusCode::OK, &SignInPage { layout, next, user, wrong: false })
}

/// Shows the sign-up page; redirects a signed-in user to the shop.
pub async fn show_sign_up(request: HttpRequest, query: Query<ReturnQuery>) -> HttpResult {
    if find_caller(&request).await.is_ok_and(|caller| caller.is_some()) {
        return Ok(see_other("/"));
    }
    let query = query.read()?;
    let (next, errors) = (csrf::local_path(&query.next), FormErrors::default());
    sign_up_page(&request, StatusCode::OK, next, String::new(), errors).await
}

pub async fn sign_in(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    csrf::check_origin(&request)?;
    let (credentials, next) = (credentials(&form)?, csrf::local_path(form.text("next")));
    let user = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, Some(&user)).await?;
    match begin_session(&request, credentials, next).await? {
        Some(response) => {
            state.rate_limits.trust_address(&request, &user).await;
            Ok(response)
        }
        None => {
            let (layout, next) = (Layout::of(&request).await?, next.to_owned());
            html(StatusCode::UNAUTHORIZED, &SignInPage { layout, next, user, wrong: true })
        }
    }
}

pub async fn sign_up(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    csrf::check_origin(&request)?;
    let (credentials, next) = (credentials(&form)?, csrf::local_path(form.text("next")));
    let user = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, None).await?;
    let (pool, min_length) = (&state.shop.pool, state.min_password_length);
    let request_id = begin_command(&request);
    let created = users::sign_up(pool, credentials.clone(), min_length, request_id).await;
    let (status, errors) = match created {
        Err(Failure::Rejected(Rejection::Invalid(field, why))) => {
            (StatusCode::UNPROCESSABLE_ENTITY, FormErrors::field(field, &why))
        }
        Err(Failure::Rejected(Rejection::Exists(_))) => (
            StatusCode::CONFLICT,
            FormErrors::field("user", "Somebody has that name; choose another."),
        ),
        Err(other) => return Err(other.into()),
        Ok(_) => {
            state.rate_limits.trust_address(&request, &user).await;
            let session = begin_session(&request, credentials, next).await?;
            return Ok(session.unwrap_or_else(|| see_other("/sign-in")));
        }
    };
    sign_up_page(&request, status, next, user, errors).await
}

pub async fn sign_out(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    let mut response = see_other("/");
    if let Some(user) = csrf::check_public_form(&request, form.csrf()).await? {
        sessions::sign_out(&state.shop, &user.token).await?;
        state.sessions.invalidate(&user.token).await;
    }
    set_cookie(&mut response, &SESSION_COOKIE.removal(&request))?;
    Ok(response)
}

/// Returns the address of the sign-in page that leads back to `next`.
pub(super) fn sign_in_url(next: &str) -> String {
    let Ok(next) = askama::filters::urlencode(next);
    format!("/sign-in?next={next}")
}

/// Reads name and password from the sign-in or the sign-up form.
fn credentials(form: &FormFields) -> Result<Credentials, Problem> {
    let user = form.required("user")?.trim().to_owned();
    Ok(Credentials { user, password: form.required("password")?.to_owned() })
}

/// Begins a session and redirects to `next`, a path of this site; `None` if the name or the
/// password is wrong.
async fn begin_session(
    request: &HttpRequest,
    credentials: Credentials,
    next: &str,
) -> Result<Option<HttpResponse>, Problem> {
    let shop = &app_state(request)?.shop;
    let Some(session) = users::sign_in(shop, credentials).await? else { return Ok(None) };
    let mut response = see_other(next);
    set_cookie(&mut response, &SESSION_COOKIE.build(request, session.token))?;
    Ok(Some(response))
}

async fn sign_up_page(
    request: &HttpRequest,
    status: StatusCode,
    next: &str,
    user: String,
    errors: FormErrors,
) -> HttpResult {
    let password_rule = users::password_rule(app_state(request)?.min_password_length);
    let (layout, next) = (Layout::of(request).await?, next.to_owned());
    html(status, &SignUpPage { layout, next, user, password_rule, errors })
}

#[cfg(test)]
mod tests {
    #[test]
    fn return_path_is_percent_encoded() {
        assert_eq!(
            super::sign_in_url("/orders?after=a&b=c"),
            "/sign-in?next=/orders%3Fafter%3Da%26b%3Dc"
        );
    }
}
