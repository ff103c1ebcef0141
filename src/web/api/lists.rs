//! Lists in pages: `{items, next}`, and a `Link` to the next page (RFC 8288).

use actix_web::http::header::LINK;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use crate::web::HttpResult;
use crate::web::paging::cut_page;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The entries, in the order of the list.
    pub items: Vec<T>,
    /// The value of `after` for the next page; null at the end of the list.
    pub next: Option<String>,
}

/// Responds with a page of `limit` entries. `rows` holds one more if the list continues.
pub(super) fn page<T: Serialize, C: ToString>(
    request: &HttpRequest,
    rows: Vec<T>,
    limit: i64,
    cursor: impl Fn(&T) -> C,
) -> HttpResult {
    let mut items = rows;
    let next = cut_page(&mut items, limit, |item| cursor(item).to_string());

    let mut response = HttpResponse::Ok();
    if let Some(next) = &next {
        let path = request.uri().path();
        let link = format!("<{path}?after={next}&limit={limit}>; rel=\"next\"");
        response.insert_header((LINK, link));
    }

    Ok(response.json(Page { items, next }))
}
