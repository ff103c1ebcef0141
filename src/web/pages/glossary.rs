//! The words of the field, the list of which the lab's pages show one where they use it.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::layout::Layout;
use super::respond::html;
use crate::web::HttpResult;
use holdfast_base::glossary::{self, Entry};

#[derive(Debug, Template)]
#[template(path = "glossary.html")]
pub(in crate::web) struct GlossaryPage {
    layout: Layout,
    entries: Vec<Entry>,
}

pub async fn show(request: HttpRequest) -> HttpResult {
    html(StatusCode::OK, &page(Layout::of(&request).await?))
}

pub(in crate::web) fn page(layout: Layout) -> GlossaryPage {
    GlossaryPage { entries: glossary::entries(layout.language), layout }
}
