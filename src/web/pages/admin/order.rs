//! An order of any user as admins see it: with what it changed, and a form that cancels or
//! refunds it, with a reason for the admin log.

use actix_web::HttpRequest;
use actix_web::web::{Form, Path};

use super::sender::{SentForm, sender};
use crate::web::api::admin_orders::find;
use crate::web::middleware::{AdminUser, DefaultContext, FormFields, Query};
use crate::web::pages::layout::{DoneQuery, language_of};
use crate::web::pages::order::{self, AdminView};
use crate::web::pages::place_order::submit;
use crate::web::{HttpResult, State, app_state, see_other};
use holdfast_shop::command::return_order::{MAX_REASON_LENGTH, Return, ReturnedBy};
use holdfast_shop::engine;
use holdfast_shop::model::OrderStatus;

/// Shows any user's order.
pub(crate) async fn show(
    request: HttpRequest,
    _: AdminUser,
    id: Path<String>,
    query: Query<DoneQuery>,
) -> HttpResult {
    let done = match query.read()?.done.as_str() {
        "cancel" => Some((OrderStatus::Cancelled, "admin-done-cancel")),
        "refund" => Some((OrderStatus::Refunded, "admin-done-refund")),
        _ => None,
    };
    page(&request, &id, AdminView { done, ..AdminView::default() }).await
}

/// Shows the order with the text of its form, which was not executed.
pub(super) async fn show_again(request: &HttpRequest, id: &str, form: SentForm) -> HttpResult {
    page(request, id, AdminView { form, ..AdminView::default() }).await
}

async fn page(request: &HttpRequest, id: &str, view: AdminView) -> HttpResult {
    let (id, user, customer) = find(app_state(request)?, id).await?;
    order::page(request, user, id, None, Some(AdminView { customer, ..view })).await
}

type ReturnForm = (State, HttpRequest, DefaultContext, Path<String>, Form<FormFields>);

pub(crate) async fn cancel(parts: ReturnForm) -> HttpResult {
    execute(parts, "cancel", Return::Cancel).await
}

pub(crate) async fn refund(parts: ReturnForm) -> HttpResult {
    execute(parts, "refund", Return::Refund).await
}

/// Cancels or refunds any user's order, once per form, and redirects to its page.
async fn execute(
    (state, request, context, id, form): ReturnForm,
    action: &str,
    how: Return,
) -> HttpResult {
    let again = async |sent| show_again(&request, &id, sent).await;
    let admin = match sender(&request, &form, again).await? {
        Ok(admin) => admin,
        Err(page) => return Ok(page),
    };
    let key = form.key("key")?;
    let (order, _, _) = find(&state, &id).await?;
    let reason = form.required("reason")?;

    let command = async || {
        let by = ReturnedBy::admin(admin, reason)?;
        engine::return_order(&state.shop, &context, by, order, Some(key.clone()), how).await
    };
    let language = language_of(&request);
    let errors = submit(language, command).await?;
    if errors.is_empty() {
        return Ok(see_other(&format!("/admin/orders/{order}?done={action}")));
    }

    let max = [("max", MAX_REASON_LENGTH.into())];
    let rule = language.text_with("admin-return-rule", &max);
    let errors = errors.explain("reason", &rule);
    show_again(&request, &id, SentForm { fields: form.into_inner(), errors }).await
}
