//! Parts of responses: rendered pages, cookies, and sources of a content security policy.

use actix_web::HttpResponse;
use actix_web::cookie::Cookie;
use actix_web::http::StatusCode;
use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::web::{HttpResult, Problem, ProblemType};
use holdfast_base::messages::message;

pub(super) fn html(status: StatusCode, page: &impl Template) -> HttpResult {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "a template failed");
        Problem::undrawn_page()
    })?;
    Ok(HttpResponse::build(status).content_type("text/html; charset=utf-8").body(text))
}

/// Formats data for a script, as [`script_json`].
pub(super) fn script_data(data: &impl Serialize) -> Result<String, Problem> {
    let value = serde_json::to_value(data).map_err(|error| {
        tracing::error!(%error, "data for a script can't be written");
        Problem::undrawn_page()
    })?;
    Ok(script_json(&value))
}

/// Formats JSON that cannot end the script element that it is in.
pub(super) fn script_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

/// Returns the source with which a content security policy admits an inline style or script.
pub(super) fn hash_source(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)))
}

/// Returns the policy of a page that is saved as one file, which admits nothing but its style.
pub(super) fn saved_policy(style: &str) -> String {
    format!("default-src 'none'; style-src {}", hash_source(style))
}

/// Removes the `@font-face` rules, whose files a saved page does not have.
pub(super) fn without_fonts(css: &str) -> String {
    let mut parts = css.split("@font-face");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once('}').map_or("", |(_, rest)| rest))
}

pub(super) fn set_cookie(response: &mut HttpResponse, cookie: &Cookie<'_>) -> Result<(), Problem> {
    response.add_cookie(cookie).map_err(|error| {
        tracing::error!(%error, "a cookie can't be set");
        Problem::new(ProblemType::InternalError, message!("problem-unset-cookie"))
    })
}
