//! Signing up.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::form_errors::FormErrors;
use super::layout::Layout;
use super::sign_in::{CredentialsForm, ReturnQuery, begin_session};
use super::{html, see_other};
use crate::shop::users::{self, Credentials};
use crate::shop::{Failure, Rejection};
use crate::web::middleware::auth::find_signed_in;
use crate::web::middleware::csrf;
use crate::web::{AppState, HttpResult};

#[derive(Debug, Template)]
#[template(path = "sign_up.html")]
struct SignUpPage {
    layout: Layout,
    next: String,
    user: String,
    errors: FormErrors,
}

/// Shows the page; redirects a signed-in user to the shop.
pub async fn show(request: HttpRequest, query: web::Query<ReturnQuery>) -> HttpResult {
    if find_signed_in(&request).await.is_ok_and(|signed_in| signed_in.is_some()) {
        return Ok(see_other("/"));
    }
    page(&request, StatusCode::OK, &query.next, String::new(), FormErrors::default()).await
}

/// Creates the user and signs in.
pub async fn sign_up(
    state: web::Data<AppState>,
    request: HttpRequest,
    form: web::Form<CredentialsForm>,
) -> HttpResult {
    csrf::check_origin(&request)?;
    let CredentialsForm { user, password, next } = form.into_inner();
    let user = user.trim().to_owned();
    state.rate_limits.check_sign_in(&request, None).await?;
    let credentials = Credentials { user: user.clone(), password: password.clone() };
    let (status, errors) = match users::create(&state.shop.pool, credentials, false).await {
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
            let session = begin_session(&state.shop, user, password, &next).await?;
            return Ok(session.unwrap_or_else(|| see_other("/sign-in")));
        }
    };
    page(&request, status, &next, user, errors).await
}

async fn page(
    request: &HttpRequest,
    status: StatusCode,
    next: &str,
    user: String,
    errors: FormErrors,
) -> HttpResult {
    let next = csrf::local_path(next).to_owned();
    let layout = Layout::of(request).await?;
    html(status, &SignUpPage { layout, next, user, errors })
}
