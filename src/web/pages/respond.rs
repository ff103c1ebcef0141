//! Renders pages as responses.

use actix_web::HttpResponse;
use actix_web::cookie::Cookie;
use actix_web::http::StatusCode;
use askama::Template;

use crate::web::{HttpResult, Problem, ProblemType};

pub(super) fn html(status: StatusCode, page: &impl Template) -> HttpResult {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "a template failed");
        Problem::new(ProblemType::InternalError, "the page can't be drawn")
    })?;
    Ok(HttpResponse::build(status).content_type("text/html; charset=utf-8").body(text))
}

pub(super) fn set_cookie(response: &mut HttpResponse, cookie: &Cookie<'_>) -> Result<(), Problem> {
    response.add_cookie(cookie).map_err(|error| {
        tracing::error!(%error, "a cookie can't be set");
        Problem::new(ProblemType::InternalError, "a cookie can't be set")
    })
}
