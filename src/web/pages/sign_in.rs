//! Signing in, signing up and signing out.

use actix_web::http::StatusCode;
use actix_web::web::Form;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::Deserialize;

use super::admin::shown_again;
use super::kept_basket;
use super::layout::{Layout, language_of};
use super::rejection::FormErrors;
use super::respond::{html, set_cookie};
use super::sign_in_page::{KeptForm, SignInPage};
use crate::web::middleware::{
    BASKET_COOKIE, FormFields, Query, SESSION_COOKIE, begin_command, csrf, enter_session,
    find_caller,
};
use crate::web::{HttpResult, Problem, State, app_state, see_other};
use holdfast_base::messages::Language;
use holdfast_shop::sessions::{self, SessionToken};
use holdfast_shop::users::{self, Credentials, SignIn, WELCOME_CENTS};
use holdfast_shop::{Cents, Failure, Rejection};

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
pub struct SignInQuery {
    #[serde(default)]
    next: String,
    ended: Option<String>,
}

pub(crate) async fn show(request: HttpRequest, query: Query<SignInQuery>) -> HttpResult {
    let query = query.read()?;
    let layout = Layout::of(&request).await?;
    let next = csrf::local_path(&query.next);
    let page = SignInPage {
        next: next.to_owned(),
        user: String::new(),
        has_ended: query.ended.is_some(),
        errors: FormErrors::default(),
        demo_user: layout.demo_user(&request, next).await,
        kept: None,
        layout,
    };
    html(StatusCode::OK, &page)
}

pub(crate) async fn show_sign_up(request: HttpRequest, query: Query<SignInQuery>) -> HttpResult {
    app_state(&request)?.require_open_sign_up()?;
    if find_caller(&request).await.is_ok_and(|caller| caller.is_some()) {
        return Ok(see_other("/shop"));
    }
    let query = query.read()?;
    let (next, errors) = (csrf::local_path(&query.next), FormErrors::default());
    sign_up_page(&request, StatusCode::OK, next, String::new(), errors).await
}

pub(crate) async fn sign_in(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    csrf::check_origin(&request)?;
    let (credentials, next) = (credentials(&form)?, csrf::local_path(form.text("next")));
    let user = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, Some(&user)).await?;

    let kept = KeptForm::carried(&form);
    let why = match users::sign_in(&state.shop, credentials).await? {
        SignIn::Session(session) => {
            state.rate_limits.trust_address(&request, &user).await;
            return begin_session(&request, session, next, kept).await;
        }
        SignIn::Wrong => "shop-sign-in-wrong",
        SignIn::Disabled => "shop-sign-in-disabled",
    };

    let layout = Layout::of(&request).await?;
    let page = SignInPage {
        next: next.to_owned(),
        user,
        has_ended: false,
        errors: FormErrors::field("password", &layout.text(why)),
        demo_user: None,
        kept,
        layout,
    };
    html(StatusCode::UNAUTHORIZED, &page)
}

pub(crate) async fn sign_up(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    state.require_open_sign_up()?;
    csrf::check_origin(&request)?;
    let (credentials, next) = (credentials(&form)?, csrf::local_path(form.text("next")));
    let user = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, None).await?;

    let (pool, min_length) = (&state.shop.pool, state.min_password_length);
    let language = language_of(&request);
    let request_id = begin_command(&request);

    let created =
        users::create(pool, credentials.clone(), false, Some(request_id), min_length).await;

    let (status, errors) = match created {
        Err(Failure::Rejected(Rejection::Invalid(field, why))) => {
            let errors = FormErrors::field(field, &why.text(language))
                .explain("user", &language.text("shop-name-rule"))
                .explain("password", &password_rule(language, min_length));
            (StatusCode::UNPROCESSABLE_ENTITY, errors)
        }
        Err(Failure::Rejected(Rejection::Exists(_))) => {
            (StatusCode::CONFLICT, FormErrors::field("user", &language.text("shop-name-taken")))
        }
        Err(other) => return Err(other.into()),
        Ok(_) => {
            state.rate_limits.trust_address(&request, &user).await;
            return match users::sign_in(&state.shop, credentials).await? {
                SignIn::Session(session) => begin_session(&request, session, next, None).await,
                SignIn::Wrong | SignIn::Disabled => Ok(see_other("/sign-in")),
            };
        }
    };

    sign_up_page(&request, status, next, user, errors).await
}

pub(crate) async fn sign_out(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    let mut response = see_other(if state.class { "/join" } else { "/shop" });
    if let Some(user) = csrf::check_public_form(&request, form.csrf()).await? {
        sessions::sign_out(&state.shop, &user.token).await?;
        state.sessions.invalidate(&user.token).await;
        // The next person at this browser sees no basket.
        set_cookie(&mut response, &BASKET_COOKIE.removal(&request))?;
    }
    set_cookie(&mut response, &SESSION_COOKIE.removal(&request))?;
    Ok(response)
}

/// Returns the address of the sign-in page that leads back to `next`; the page says if a session
/// has ended.
pub(super) fn sign_in_url(next: &str, has_ended: bool) -> String {
    let Ok(next) = askama::filters::urlencode(next);
    let ended = if has_ended { "&ended=yes" } else { "" };
    format!("/sign-in?next={next}{ended}")
}

pub(super) fn password_rule(language: Language, min_length: u16) -> String {
    let variables = [("min", min_length.into()), ("max", users::MAX_PASSWORD_LENGTH.into())];
    language.text_with("shop-password-rule", &variables)
}

fn credentials(form: &FormFields) -> Result<Credentials, Problem> {
    let user = form.required("user")?.trim().to_owned();
    Ok(Credentials { user, password: form.required("password")?.to_owned() })
}

/// Gives the browser its session, and redirects to `next`, a path of this site; or shows the form
/// that the sign-in page has carried on.
async fn begin_session(
    request: &HttpRequest,
    session: SessionToken,
    next: &str,
    kept: Option<KeptForm>,
) -> HttpResult {
    let shown = match kept {
        Some(kept) => show_again(request, &session, kept).await,
        None => Ok(see_other(next)),
    };
    // The session has begun: the browser gets it with an error page, too.
    let mut response = shown.unwrap_or_else(HttpResponse::from_error);
    kept_basket::move_to_account(request, &session.token, &mut response).await;
    set_cookie(&mut response, &SESSION_COOKIE.build(request, session.token))?;
    Ok(response)
}

async fn show_again(request: &HttpRequest, session: &SessionToken, kept: KeptForm) -> HttpResult {
    enter_session(request, &session.token).await?;
    shown_again::show(request, kept).await
}

async fn sign_up_page(
    request: &HttpRequest,
    status: StatusCode,
    next: &str,
    user: String,
    errors: FormErrors,
) -> HttpResult {
    let (layout, next) = (Layout::of(request).await?, next.to_owned());
    let password_rule = password_rule(layout.language, app_state(request)?.min_password_length);
    html(status, &SignUpPage { layout, next, user, password_rule, errors })
}
