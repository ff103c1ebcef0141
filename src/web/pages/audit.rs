//! The audit page, for admins: every check with its result.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::frame::Frame;
use super::{door, html};
use crate::shop::audit::{self, AuditReport};
use crate::web::{HttpResult, Site};

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    audit: AuditReport,
    failed: usize,
}

/// Shows the audit.
pub async fn show(site: web::Data<Site>, request: HttpRequest) -> HttpResult {
    door::admin(&request).await?;
    let audit = audit::check_all(&site.shop.pool, Some(&site.shop.locks)).await?;
    let failed = audit.checks.iter().filter(|check| !check.ok).count();
    let frame = Frame::of(&request).await?;
    html(StatusCode::OK, &AuditPage { frame, audit, failed })
}
