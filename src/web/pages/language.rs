//! The language of the pages: the visitor's choice, else the browser's.

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptLanguage, Header as _};
use actix_web::web::Path;
use serde::Deserialize;

use super::respond::set_cookie;
use crate::messages::Language;
use crate::web::middleware::{LANGUAGE_COOKIE, Query, csrf};
use crate::web::{HttpResult, Problem, see_other};

#[derive(Debug, Deserialize)]
pub struct ReturnQuery {
    /// The page to go back to, on this site.
    #[serde(default)]
    next: String,
}

/// Returns the language of the cookie, else the first of `Accept-Language` with an edition.
pub(super) fn of_request(request: &HttpRequest) -> Language {
    let chosen = LANGUAGE_COOKIE.read(request).and_then(|tag| Language::of_tag(&tag));
    let preferred = || {
        let accepted = AcceptLanguage::parse(request).ok()?.ranked();
        accepted.iter().find_map(|tag| Language::of_tag(tag.item()?.as_str()))
    };
    chosen.or_else(preferred).unwrap_or_default()
}

/// Remembers a language, and redirects back.
pub async fn choose(
    request: HttpRequest,
    tag: Path<String>,
    query: Query<ReturnQuery>,
) -> HttpResult {
    let language = Language::of_tag(&tag);
    let language = language.ok_or_else(|| Problem::no_page(request.path()))?;
    let mut response = see_other(csrf::local_path(&query.read()?.next));
    let cookie = LANGUAGE_COOKIE.build(&request, language.tag().to_owned());
    set_cookie(&mut response, &cookie)?;
    Ok(response)
}
