//! Admin endpoints: the audit, and the locks that are held.

use actix_web::{HttpResponse, web};

use crate::lock::inspect::HeldLock;
use crate::shop::Error;
use crate::shop::audit::{self, AuditReport};
use crate::web::auth::Admin;
use crate::web::openapi::Refusals;
use crate::web::{HttpResult, Site};

/// Checks ledgers, orders, accounts and Redis against each other (admin).
#[utoipa::path(get, path = "/api/audit", tag = "proof", security(("session" = [])),
    responses((status = 200, body = AuditReport), Refusals))]
pub async fn everything(site: web::Data<Site>, _: Admin) -> HttpResult {
    Ok(HttpResponse::Ok().json(audit::check_all(&site.shop.pool, Some(&site.shop.locks)).await?))
}

/// Lists the locks that are held, with holder and start (admin).
#[utoipa::path(get, path = "/api/locks", tag = "proof", security(("session" = [])),
    responses((status = 200, body = [HeldLock]), Refusals))]
pub async fn locks(site: web::Data<Site>, _: Admin) -> HttpResult {
    let held = site.shop.locks.held().await.map_err(Error::from)?;
    Ok(HttpResponse::Ok().json(held))
}
