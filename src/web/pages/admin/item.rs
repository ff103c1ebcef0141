//! An item as admins see it: its settings, its stock, and what was changed. Two admins may
//! have it open at once: an edit changes only the settings that were edited, and is rejected if one
//! of them has changed since.

use actix_web::HttpRequest;
use actix_web::web::{Form, Path};
use askama::Template;

use super::item_form::{INPUTS, WAS, changes, explain_rejection, filled_in};
use super::log::LogRow;
use super::sender::{SentForm, sender};
use crate::web::middleware::{AdminUser, DefaultContext, FormFields, Query, body};
use crate::web::pages::format::{FormatTime as _, format_count};
use crate::web::pages::layout::{DoneQuery, Layout, language_of};
use crate::web::pages::place_order::submit;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, Problem, State, app_state, see_other};
use holdfast_base::messages::Language;
use holdfast_shop::command::MAX_AMOUNT;
use holdfast_shop::command::restock::RestockRequest;
use holdfast_shop::model::Item;
use holdfast_shop::query::{admin_log, catalog};
use holdfast_shop::{Shop, Sku, engine};

/// Entries of the log on the page.
const LOG_LENGTH: i64 = 10;
/// Reasons of a change of stock that have a name in every language.
const REASONS: [&str; 3] = ["restock", "correction", "damaged"];

#[derive(Template)]
#[template(path = "admin_item.html")]
struct AdminItemPage {
    layout: Layout,
    item: Item,
    /// The name in the language of the page.
    title: String,
    log: Vec<LogRow>,
    /// True if the log has more.
    has_older: bool,
    edit: SentForm,
    stock: SentForm,
    done: Option<&'static str>,
}

impl AdminItemPage {
    fn was(&self, input: &str) -> &str {
        self.edit.fields.text(&format!("{WAS}{input}"))
    }

    /// Returns whether other pages in this language describe the item in a text that is not stored.
    fn is_translated(&self) -> bool {
        self.layout.named(self.item.clone()).description != self.item.description
    }
}

pub(crate) async fn show(
    request: HttpRequest,
    _: AdminUser,
    sku: Path<String>,
    query: Query<DoneQuery>,
) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let done = match query.read()?.done.as_str() {
        "create" => Some("admin-done-create"),
        "edit" => Some("admin-done-edit"),
        "stock" => Some("admin-done-stock"),
        _ => None,
    };
    let item = find(&app_state(&request)?.shop, &sku).await?;
    page(&request, item, SentForm::default(), SentForm::default(), done).await
}

/// Shows the item with the text of one of its forms, which was not executed.
pub(super) async fn show_again(
    request: &HttpRequest,
    sku: &Sku,
    form: &str,
    sent: SentForm,
) -> HttpResult {
    let item = find(&app_state(request)?.shop, sku).await?;
    let other = SentForm::default();
    let (edit, stock) = if form == "edit" { (sent, other) } else { (other, sent) };
    page(request, item, edit, stock, None).await
}

type ItemForm = (State, HttpRequest, DefaultContext, Path<String>, Form<FormFields>);

pub(crate) async fn edit((state, request, context, sku, form): ItemForm) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let again = async |sent| show_again(&request, &sku, "edit", sent).await;
    let admin = match sender(&request, &form, again).await? {
        Ok(admin) => admin,
        Err(page) => return Ok(page),
    };
    let key = form.key("key")?;
    let language = language_of(&request);

    let changes = changes(&form, language);
    let is_readable = changes.is_ok();
    let errors = match changes {
        Err(errors) => errors,
        Ok((set, was)) => {
            let command = async || {
                let (sku, set, was) = (sku.clone(), set.clone(), was.clone());
                engine::edit_item(&state.shop, &context, admin, sku, set, was, key.clone()).await
            };
            submit(language, command).await?
        }
    };
    if errors.is_empty() {
        return Ok(see_other(&format!("/admin/items/{sku}?done=edit")));
    }

    let item = find(&state.shop, &sku).await?;
    let mut fields = form.into_inner();
    let errors = match is_readable {
        true => explain_rejection(&mut fields, errors, &item, language),
        false => errors,
    };
    page(&request, item, SentForm { fields, errors }, SentForm::default(), None).await
}

pub(crate) async fn stock((state, request, context, sku, form): ItemForm) -> HttpResult {
    let sku = body::parse_sku(&sku)?;
    let again = async |sent| show_again(&request, &sku, "stock", sent).await;
    let admin = match sender(&request, &form, again).await? {
        Ok(admin) => admin,
        Err(page) => return Ok(page),
    };
    let key = form.key("key")?;
    let language = language_of(&request);
    let (delta, reason) = (form.required("delta")?, form.required("reason")?.to_owned());

    let number = delta.trim().replace('−', "-");
    let number = number.strip_prefix('+').unwrap_or(&number).parse::<i64>().ok();
    let restock = RestockRequest { delta: number.unwrap_or_default(), reason };
    let mut errors = FormErrors::of_fields(restock.invalid(), language);
    if errors.is_empty() {
        let command = async || {
            let (sku, key) = (sku.clone(), key.clone());
            engine::restock(&state.shop, &context, admin, sku, &restock, key).await
        };
        errors = submit(language, command).await?;
        if errors.is_empty() {
            return Ok(see_other(&format!("/admin/items/{sku}?done=stock")));
        }
    }

    let item = find(&state.shop, &sku).await?;
    let delta_rule = match number {
        Some(delta) => delta_rule(delta, item.stock, language),
        None => language.text("shop-delta-unclear"),
    };
    let errors = errors.explain("delta", &delta_rule);
    let errors = errors.explain("reason", &language.text("shop-reason-rule"));
    let stock = SentForm { fields: form.into_inner(), errors };
    page(&request, item, SentForm::default(), stock, None).await
}

fn delta_rule(delta: i64, stock: i64, language: Language) -> String {
    let stock_and_most =
        [("stock", format_count(stock).into()), ("most", format_count(MAX_AMOUNT).into())];
    if delta == 0 || delta.unsigned_abs() > MAX_AMOUNT.unsigned_abs() {
        language.text("admin-delta-range")
    } else if stock.saturating_add(delta) < 0 {
        language.text_with("admin-delta-below", &stock_and_most)
    } else {
        language.text_with("admin-delta-above", &stock_and_most)
    }
}

async fn find(shop: &Shop, sku: &Sku) -> Result<Item, Problem> {
    catalog::item(shop, sku).await?.ok_or_else(|| body::unknown_item(sku))
}

async fn page(
    request: &HttpRequest,
    item: Item,
    edit: SentForm,
    stock: SentForm,
    done: Option<&'static str>,
) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let subject = Some(item.sku.as_str());
    let mut log = admin_log::changes(shop, subject, None, LOG_LENGTH + 1).await?;
    let has_older = cut_page(&mut log, LOG_LENGTH, |entry| entry.seq).is_some();

    let path = format!("/admin/items/{}", item.sku);
    let layout = Layout { path, ..Layout::of(request).await? };
    let log = log.into_iter().map(|entry| LogRow::new(entry, layout.language)).collect();
    let edit = match edit.fields.0.is_empty() {
        true => SentForm { fields: filled_in(&item), ..edit },
        false => edit,
    };

    let status = if edit.errors.is_empty() { stock.errors.status() } else { edit.errors.status() };
    let title = layout.named(item.clone()).name;
    html(status, &AdminItemPage { layout, item, title, log, has_older, edit, stock, done })
}
