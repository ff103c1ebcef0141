//! The list of all items of the shop, also hidden ones, and the form that adds one.

use actix_web::HttpRequest;
use actix_web::web::Form;
use askama::Template;
use serde::Deserialize;

use super::item_form::{explain, settings};
use super::sender::{SentForm, sender};
use crate::web::middleware::{AdminUser, DefaultContext, FormFields, Query};
use crate::web::pages::layout::{Layout, language_of};
use crate::web::pages::place_order::submit;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::paging::cut_page;
use crate::web::{HttpResult, State, app_state, see_other};
use holdfast_base::messages::{Language, message};
use holdfast_shop::command::MAX_AMOUNT;
use holdfast_shop::model::Item;
use holdfast_shop::query::catalog;
use holdfast_shop::store::items;
use holdfast_shop::{Cents, Failure, Rejection, Sku};

const PAGE_LENGTH: i64 = 50;

#[derive(Template)]
#[template(path = "admin_items.html")]
struct ItemsPage {
    layout: Layout,
    items: Vec<Item>,
    more: Option<Sku>,
    /// The text that is looked for.
    search: String,
    add: SentForm,
}

#[derive(Debug, Default, Deserialize)]
pub struct ItemsQuery {
    #[serde(default)]
    pub(super) search: String,
    after: Option<String>,
}

pub(crate) async fn list(
    request: HttpRequest,
    _: AdminUser,
    query: Query<ItemsQuery>,
) -> HttpResult {
    page(&request, query.read()?, SentForm::default()).await
}

pub(crate) async fn create(
    state: State,
    request: HttpRequest,
    context: DefaultContext,
    form: Form<FormFields>,
) -> HttpResult {
    let again = async |sent| page(&request, ItemsQuery::default(), sent).await;
    let admin = match sender(&request, &form, again).await? {
        Ok(admin) => admin,
        Err(page) => return Ok(page),
    };
    let key = form.key("key")?;
    let language = language_of(&request);

    let errors = match new_item(&form, language) {
        Err(errors) => errors,
        Ok(item) => {
            let sku = item.sku.clone();
            let command = async || {
                let (item, key, id) = (item.clone(), Some(key.clone()), context.request_id);
                match items::create(&state.shop, admin, item, key, id).await {
                    Err(Failure::Rejected(Rejection::Exists(_))) => {
                        let why = message!("admin-sku-taken");
                        Err(Rejection::Invalid("sku".into(), why).into())
                    }
                    other => other,
                }
            };
            let errors = submit(language, command).await?;
            if errors.is_empty() {
                return Ok(see_other(&format!("/admin/items/{sku}?done=create")));
            }
            explain(errors, language)
        }
    };
    let rejected = SentForm { fields: form.into_inner(), errors };
    page(&request, ItemsQuery::default(), rejected).await
}

/// Reads a new item from the form, or says what of it is wrong.
fn new_item(form: &FormFields, language: Language) -> Result<Item, FormErrors> {
    let (set, mut errors) = settings(form, "", language);
    let sku = Sku::try_from(form.trimmed("sku").to_owned()).ok();
    match &sku {
        None => errors = errors.and("sku", &language.text("admin-sku-rule")),
        Some(sku) if sku.is_throw_away() => {
            errors = errors.and("sku", &language.text("admin-sku-lab"));
        }
        Some(_) => {}
    }
    let stock = form.trimmed("stock").parse().ok();
    let stock = stock.filter(|stock| (0..=MAX_AMOUNT).contains(stock));
    if stock.is_none() {
        errors = errors.and("stock", &language.text("admin-stock-rule"));
    }

    match (sku, stock) {
        (Some(sku), Some(stock)) if errors.is_empty() => {
            Ok(set.applied_to(&Item::new(sku, String::new(), 0, stock)))
        }
        _ => Err(errors),
    }
}

pub(super) async fn page(request: &HttpRequest, query: ItemsQuery, add: SentForm) -> HttpResult {
    let shop = &app_state(request)?.shop;
    let search = query.search;
    let after = query.after.and_then(|sku| Sku::try_from(sku).ok());
    let all = catalog::all_items(shop, &search, after.as_ref(), PAGE_LENGTH + 1);
    let mut items = all.await?;
    let more = cut_page(&mut items, PAGE_LENGTH, |item| item.sku.clone());

    let layout = Layout { path: "/admin".to_owned(), ..Layout::of(request).await? };
    let items = items.into_iter().map(|item| layout.named(item)).collect();
    html(add.errors.status(), &ItemsPage { layout, items, more, search, add })
}
