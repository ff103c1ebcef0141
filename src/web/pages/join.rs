//! Joining a class: with its code, which the QR code contains, and a nickname; without a password.
//! Tests: `tests/pages/join.rs`.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;

use super::kept_basket;
use super::layout::{Layout, ReturnQuery, language_of};
use super::rejection::FormErrors;
use super::respond::{html, set_cookie};
use crate::web::middleware::{FormFields, Query, SESSION_COOKIE, csrf};
use crate::web::{HttpResult, State, see_other};
use holdfast_lab::class;
use holdfast_shop::students::{self, JoinResult};

/// Longest input that is shown again.
const MAX_SHOWN: usize = 200;

#[derive(Debug, Template)]
#[template(path = "join.html")]
struct JoinPage {
    layout: Layout,
    code: String,
    nickname: String,
    next: String,
    errors: FormErrors,
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    query: Query<ReturnQuery>,
) -> HttpResult {
    state.require_class(&request)?;
    let next = return_path(&query.read()?.next).to_owned();
    page(&request, StatusCode::OK, ["", "", &next], FormErrors::default()).await
}

/// The page with the code of the address filled in: that of the QR code.
pub(crate) async fn show_code(
    state: State,
    request: HttpRequest,
    code: Path<String>,
) -> HttpResult {
    state.require_class(&request)?;
    let code = class::clean_code(&code);
    page(&request, StatusCode::OK, [&code, "", return_path("")], FormErrors::default()).await
}

pub(crate) async fn join(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    state.require_class(&request)?;
    csrf::check_origin(&request)?;
    state.rate_limits.check_join(&request).await?;

    let (code, typed) = (form.text("code"), form.text("nickname"));
    let next = return_path(form.text("next"));
    let language = language_of(&request);

    let (status, errors) = match students::clean(typed) {
        None => {
            let most = [("most", students::MAX_NICKNAME.into())];
            let why = language.text_with("join-wrong-nickname", &most);
            (StatusCode::UNPROCESSABLE_ENTITY, FormErrors::field("nickname", &why))
        }
        Some(nickname) => match class::join(&state.shop.pool, code, &nickname).await? {
            Some(JoinResult::Joined(session)) => {
                let mut response = see_other(next);
                kept_basket::move_to_account(&request, &session.token, &mut response).await;
                set_cookie(&mut response, &SESSION_COOKIE.build(&request, session.token))?;
                return Ok(response);
            }
            None => {
                let why = language.text("join-wrong-code");
                (StatusCode::UNPROCESSABLE_ENTITY, FormErrors::field("code", &why))
            }
            Some(JoinResult::Taken(nickname)) => {
                let why = language.text_with("join-taken", &[("nickname", nickname.into())]);
                (StatusCode::CONFLICT, FormErrors::field("nickname", &why))
            }
            Some(JoinResult::Full) => {
                let most = [("most", students::MAX_STUDENTS.into())];
                let why = language.text_with("join-full", &most);
                (StatusCode::CONFLICT, FormErrors::field("nickname", &why))
            }
        },
    };

    let shown: String = typed.chars().take(MAX_SHOWN).collect();
    page(&request, status, [&class::clean_code(code), &shown, next], errors).await
}

/// Returns where to go after joining: `next` if it is on this site, otherwise the lab.
fn return_path(next: &str) -> &str {
    if next.is_empty() { "/lab" } else { csrf::local_path(next) }
}

async fn page(
    request: &HttpRequest,
    status: StatusCode,
    [code, nickname, next]: [&str; 3],
    errors: FormErrors,
) -> HttpResult {
    let page = JoinPage {
        layout: Layout::of(request).await?,
        code: code.to_owned(),
        nickname: nickname.to_owned(),
        next: next.to_owned(),
        errors,
    };
    html(status, &page)
}

/// Returns the address of the page that leads back to `next`.
pub(super) fn join_url(next: &str) -> String {
    let Ok(next) = askama::filters::urlencode(next);
    format!("/join?next={next}")
}
