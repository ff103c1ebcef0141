//! A form that the sign-in page has carried on, shown again on its page.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;

use super::items::ItemsQuery;
use super::sender::{SentForm, is_admin};
use super::{item, items, order};
use crate::web::middleware::body;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::sign_in_page::KeptForm;
use crate::web::{HttpResult, Problem, see_other};

pub(in crate::web::pages) async fn show(request: &HttpRequest, kept: KeptForm) -> HttpResult {
    // Perhaps another user has signed in.
    if !is_admin(request).await? {
        return Ok(see_other("/shop"));
    }

    let action = kept.action.clone();
    // It stays the form of who opened it: sent by another admin, it is shown once more.
    let sent = SentForm { fields: kept.into_fields(), errors: FormErrors::unsent() };
    let path: Vec<&str> = action.split('/').skip(1).collect();
    let mut page = match path[..] {
        ["admin", "items"] => items::page(request, ItemsQuery::default(), sent).await,
        ["admin", "items", sku, form @ ("edit" | "stock")] => {
            let sku = body::parse_sku(sku)?;
            item::show_again(request, &sku, form, sent).await
        }
        ["admin", "orders", id, "cancel" | "refund"] => order::show_again(request, id, sent).await,
        _ => return Err(Problem::no_page(&action)),
    }?;
    // The sign-in succeeded.
    *page.status_mut() = StatusCode::OK;
    Ok(page)
}
