//! The admin log: what admins changed, newest first.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;
use serde_json::Value;

use crate::web::middleware::{AdminUser, Query};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, State};
use holdfast_base::messages::Language;
use holdfast_shop::Cents;
use holdfast_shop::model::LoggedChange;
use holdfast_shop::query::admin_log;

const PAGE_LENGTH: i64 = 50;
/// Characters of a text that the log shows; the API has all of it.
const SHOWN_CHARACTERS: usize = 80;

#[derive(Debug, Template)]
#[template(path = "admin_log.html")]
struct LogPage {
    layout: Layout,
    log: Vec<LogRow>,
    older: Option<i64>,
}

/// A change as the pages show it.
#[derive(Debug)]
pub(super) struct LogRow {
    pub entry: LoggedChange,
    pub action: String,
    pub fields: Vec<ChangedField>,
}

#[derive(Debug)]
pub(super) struct ChangedField {
    pub name: String,
    /// `None` of something new.
    pub before: Option<String>,
    pub after: String,
}

impl LogRow {
    pub(super) fn new(entry: LoggedChange, language: Language) -> Self {
        let action = language.text(&format!("keeper-action-{}", entry.action.name()));
        let after = entry.after.as_object().into_iter().flatten();
        let fields = after.map(|(field, after)| ChangedField {
            name: language.text(&format!("keeper-field-{}", field.replace('_', "-"))),
            before: entry.before.get(field).map(|before| in_words(field, before, language)),
            after: in_words(field, after, language),
        });
        let fields = fields.collect();
        Self { entry, action, fields }
    }
}

#[derive(Debug, Deserialize)]
pub struct LogQuery {
    after: Option<i64>,
}

pub async fn show(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    query: Query<LogQuery>,
) -> HttpResult {
    let after = query.read()?.after;
    let mut log = admin_log::changes(&state.shop, None, after, PAGE_LENGTH + 1).await?;
    let older = cut_page(&mut log, PAGE_LENGTH, |entry| entry.seq);

    let layout = Layout::of(&request).await?;
    let log = log.into_iter().map(|entry| LogRow::new(entry, layout.language)).collect();
    html(StatusCode::OK, &LogPage { layout, log, older })
}

pub(super) fn in_words(field: &str, value: &Value, language: Language) -> String {
    match value {
        Value::Null => language.text("keeper-value-none"),
        Value::Bool(true) => language.text("keeper-value-yes"),
        Value::Bool(false) => language.text("keeper-value-no"),
        Value::Number(cents) if field.ends_with("_cents") => {
            Cents(cents.as_i64().unwrap_or_default()).money()
        }
        Value::String(text) if text.is_empty() => language.text("keeper-value-none"),
        Value::String(text) if text.chars().count() > SHOWN_CHARACTERS => {
            text.chars().take(SHOWN_CHARACTERS).chain(['…']).collect()
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
