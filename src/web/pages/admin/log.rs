//! The admin log: what admins changed, newest first.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;
use serde_json::Value;

use crate::web::middleware::{AdminUser, Query, cursor};
use crate::web::pages::format::{FormatTime as _, short_id};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, State};
use holdfast_base::messages::Language;
use holdfast_shop::model::{AdminAction, LoggedChange};
use holdfast_shop::query::{admin_log, users};
use holdfast_shop::{Cents, Error, Shop};

const PAGE_LENGTH: i64 = 50;
/// Characters of a text that the log shows; the API has all of it.
const SHOWN_CHARACTERS: usize = 80;

#[derive(Debug, Template)]
#[template(path = "admin_log.html")]
struct LogPage {
    layout: Layout,
    filter: LogFilter,
    log: Vec<LogRow>,
    older: Option<i64>,
}

/// The changes to show: of one item, by its sku, or of one user, by name; without either, all.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LogFilter {
    item: String,
    user: String,
}

impl LogFilter {
    pub(super) async fn subject(&self, shop: &Shop) -> Result<Option<String>, Error> {
        match (self.item.as_str(), self.user.as_str()) {
            ("", "") => Ok(None),
            ("", name) => {
                let user = users::id(shop, name).await?;
                // No change is of an empty subject: the log of an unknown user is empty.
                Ok(Some(user.map(|user| user.0.to_string()).unwrap_or_default()))
            }
            (sku, _) => Ok(Some(sku.replace('\0', ""))),
        }
    }

    /// Returns what is asked for, for the title: a sku or a name.
    fn name(&self) -> &str {
        if self.item.is_empty() { &self.user } else { &self.item }
    }

    /// Returns the filter as a query, before other parameters.
    fn query(&self) -> String {
        let fields = [("item", &self.item), ("user", &self.user)];
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty()));
        query.finish()
    }
}

/// A change as the pages show it.
#[derive(Debug)]
pub(in crate::web::pages) struct LogRow {
    pub entry: LoggedChange,
    pub action: String,
    pub fields: Vec<ChangedField>,
}

#[derive(Debug)]
pub(in crate::web::pages) struct ChangedField {
    pub name: String,
    /// `None` of something new.
    pub before: Option<String>,
    pub after: String,
}

impl LogRow {
    /// Returns the address of what was changed, and its short name; a user is shown by name.
    pub(in crate::web::pages) fn link(&self) -> Option<(String, String)> {
        let subject = &self.entry.subject;
        match self.entry.action {
            AdminAction::CreateItem | AdminAction::EditItem => {
                Some((format!("/admin/items/{subject}"), subject.clone()))
            }
            AdminAction::CancelOrder | AdminAction::RefundOrder => {
                Some((format!("/admin/orders/{subject}"), short_id(subject)))
            }
            AdminAction::DisableUser
            | AdminAction::EnableUser
            | AdminAction::EndSessions
            | AdminAction::SetPassword => None,
        }
    }

    pub(in crate::web::pages) fn new(entry: LoggedChange, language: Language) -> Self {
        let action = language.text(&format!("admin-action-{}", entry.action.name()));
        let after = entry.after.as_object().into_iter().flatten();
        let fields = after.map(|(field, after)| ChangedField {
            name: language.text(&format!("admin-field-{}", field.replace('_', "-"))),
            before: entry.before.get(field).map(|before| in_words(field, before, language)),
            after: in_words(field, after, language),
        });
        let fields = fields.collect();
        Self { entry, action, fields }
    }
}

#[derive(Debug, Deserialize)]
pub struct LogQuery {
    #[serde(default, deserialize_with = "cursor")]
    after: Option<i64>,
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    filter: Query<LogFilter>,
    query: Query<LogQuery>,
) -> HttpResult {
    let (filter, after) = (filter.read()?, query.read()?.after);
    let subject = filter.subject(&state.shop).await?;
    let subject = subject.as_deref();
    let mut log = admin_log::changes(&state.shop, subject, after, PAGE_LENGTH + 1).await?;
    let older = cut_page(&mut log, PAGE_LENGTH, |entry| entry.seq);

    let layout = Layout::of(&request).await?;
    let log = log.into_iter().map(|entry| LogRow::new(entry, layout.language)).collect();
    html(StatusCode::OK, &LogPage { layout, filter, log, older })
}

pub(super) fn in_words(field: &str, value: &Value, language: Language) -> String {
    match value {
        Value::String(status) if field == "status" => {
            language.text(&format!("shop-status-{status}")).to_lowercase()
        }
        Value::Null => language.text("admin-value-none"),
        Value::Bool(true) => language.text("admin-value-yes"),
        Value::Bool(false) => language.text("admin-value-no"),
        Value::Number(cents) if field.ends_with("_cents") => {
            Cents(cents.as_i64().unwrap_or_default()).money()
        }
        Value::String(text) if text.is_empty() => language.text("admin-value-none"),
        Value::String(text) if text.chars().count() > SHOWN_CHARACTERS => {
            text.chars().take(SHOWN_CHARACTERS).chain(['…']).collect()
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
