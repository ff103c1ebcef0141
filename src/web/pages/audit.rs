//! The audit page, for admins: every check with its result.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::layout::Layout;
use super::respond::html;
use crate::shop::audit::{self, AuditReport};
use crate::web::middleware::AdminUser;
use crate::web::{HttpResult, State};

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct AuditPage {
    layout: Layout,
    audit: AuditReport,
    failed: usize,
}

/// Shows the audit.
pub async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let audit = audit::check_all(&state.shop.pool, Some(&state.shop.locks)).await?;
    let failed = audit.checks.iter().filter(|check| !check.ok).count();
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &AuditPage { layout, audit, failed })
}
