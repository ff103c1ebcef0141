//! Signing in and out.

use actix_web::cookie::Cookie;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use serde::Deserialize;

use super::layout::Layout;
use super::{html, see_other};
use crate::shop::Shop;
use crate::shop::users::{self, Credentials};
use crate::web::middleware::auth::{SESSION_COOKIE, session_cookie};
use crate::web::middleware::csrf::{self, CsrfForm};
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    layout: Layout,
    next: String,
    user: String,
    wrong: bool,
}

#[derive(Debug, Deserialize)]
pub struct ReturnQuery {
    /// The address to go to after signing in, on this site.
    #[serde(default)]
    pub next: String,
}

/// Name and password from the sign-in or the sign-up form.
#[derive(Deserialize)]
pub struct CredentialsForm {
    pub user: String,
    pub password: String,
    #[serde(default)]
    pub next: String,
}

impl std::fmt::Debug for CredentialsForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialsForm").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Returns the address of the sign-in page that leads back to `next`.
pub fn sign_in_url(next: &str) -> String {
    let next: String = next
        .bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                char::from(b).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("/sign-in?next={next}")
}

/// Shows the sign-in page.
pub async fn show(request: HttpRequest, query: web::Query<ReturnQuery>) -> HttpResult {
    page(&request, StatusCode::OK, &query.next, String::new(), false).await
}

pub async fn sign_in(
    state: web::Data<AppState>,
    request: HttpRequest,
    form: web::Form<CredentialsForm>,
) -> HttpResult {
    csrf::check_origin(&request)?;
    let form = form.into_inner();
    let user = form.user.trim().to_owned();
    state.rate_limits.check_sign_in(&request, Some(&user)).await?;
    match begin_session(&state.shop, user.clone(), form.password, &form.next).await? {
        Some(response) => {
            state.rate_limits.trust_address(&request, &user).await;
            Ok(response)
        }
        None => page(&request, StatusCode::UNAUTHORIZED, &form.next, user, true).await,
    }
}

/// Begins a session and redirects to `next`; `None` if the name or the password is wrong.
pub(super) async fn begin_session(
    shop: &Shop,
    user: String,
    password: String,
    next: &str,
) -> Result<Option<HttpResponse>, Problem> {
    let session = users::sign_in(shop, Credentials { user, password }).await?;
    let Some(session) = session else { return Ok(None) };
    let mut response = see_other(csrf::local_path(next));
    set_cookie(&mut response, &session_cookie(session.token))?;
    Ok(Some(response))
}

pub async fn sign_out(
    state: web::Data<AppState>,
    request: HttpRequest,
    form: web::Form<CsrfForm>,
) -> HttpResult {
    let mut response = see_other("/");
    if let Some(who) = csrf::check_public_form(&request, &form.csrf).await? {
        users::sign_out(&state.shop, &who.token).await?;
        state.sessions.invalidate(&who.token).await;
    }
    let mut removal = Cookie::build(SESSION_COOKIE, "").path("/").http_only(true).finish();
    removal.make_removal();
    set_cookie(&mut response, &removal)?;
    Ok(response)
}

async fn page(
    request: &HttpRequest,
    status: StatusCode,
    next: &str,
    user: String,
    wrong: bool,
) -> HttpResult {
    let next = csrf::local_path(next).to_owned();
    let layout = Layout::of(request).await?;
    html(status, &SignInPage { layout, next, user, wrong })
}

pub(super) fn set_cookie(response: &mut HttpResponse, cookie: &Cookie<'_>) -> Result<(), Problem> {
    response.add_cookie(cookie).map_err(|error| {
        tracing::error!(%error, "a cookie can't be set");
        Problem::new(crate::web::problems::ProblemType::InternalError, "a cookie can't be set")
    })
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
