//! The audit page, for admins: every check with its result.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::html;
use super::layout::Layout;
use crate::shop::audit::{self, AuditReport};
use crate::web::middleware::csrf;
use crate::web::{AppState, HttpResult};

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct AuditPage {
    layout: Layout,
    audit: AuditReport,
    failed: usize,
}

/// Shows the audit.
pub async fn show(state: web::Data<AppState>, request: HttpRequest) -> HttpResult {
    csrf::require_admin(&request).await?;
    let audit = audit::check_all(&state.shop.pool, Some(&state.shop.locks)).await?;
    let failed = audit.checks.iter().filter(|check| !check.ok).count();
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &AuditPage { layout, audit, failed })
}
