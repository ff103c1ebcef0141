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
    page_before(request, items, next, limit)
}

/// Responds with a page, and with the cursor of the next one if the list continues.
pub(super) fn page_before<T: Serialize>(
    request: &HttpRequest,
    items: Vec<T>,
    next: Option<impl ToString>,
    limit: i64,
) -> HttpResult {
    let next = next.map(|next| next.to_string());

    let mut response = HttpResponse::Ok();
    if let Some(next) = &next {
        let path = request.uri().path();
        let filters: String = form_urlencoded::parse(request.query_string().as_bytes())
            .filter(|(name, _)| !matches!(&**name, "after" | "limit"))
            .map(|(name, value)| {
                let pair = form_urlencoded::Serializer::new(String::new())
                    .append_pair(&name, &value)
                    .finish();
                format!("&{pair}")
            })
            .collect();
        let link = format!("<{path}?after={next}&limit={limit}{filters}>; rel=\"next\"");
        response.insert_header((LINK, link));
    }

    Ok(response.json(Page { items, next }))
}
