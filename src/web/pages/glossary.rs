//! The words of the field, the list of which the lab's pages show one where they use it.

use std::collections::BTreeSet;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::layout::Layout;
use super::respond::html;
use crate::web::HttpResult;
use holdfast_base::glossary::{self, GlossaryEntry};
use holdfast_base::messages::Language;

#[derive(Debug, Template)]
#[template(path = "glossary.html")]
pub(in crate::web) struct GlossaryPage {
    layout: Layout,
    entries: Vec<GlossaryEntry>,
}

/// Returns the entries of the words that texts use.
pub fn used(texts: &[String], language: Language) -> Vec<GlossaryEntry> {
    let pieces = texts.iter().flat_map(|text| glossary::mark(text, language));
    let ids: BTreeSet<&str> = pieces.filter_map(|piece| piece.term).collect();
    let entries = glossary::entries(language).into_iter();
    entries.filter(|entry| ids.contains(entry.id)).collect()
}

pub(crate) async fn show(request: HttpRequest) -> HttpResult {
    html(StatusCode::OK, &page(Layout::of(&request).await?))
}

pub(in crate::web) fn page(layout: Layout) -> GlossaryPage {
    GlossaryPage { entries: glossary::entries(layout.language), layout }
}
