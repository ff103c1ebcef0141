//! Admin endpoints: the audit, and the locks that are held.

use actix_web::{HttpResponse, web};

use crate::lock::inspect::HeldLock;
use crate::shop::Error;
use crate::shop::audit::{self, Audit};
use crate::web::middleware::auth::AdminUser;
use crate::web::openapi::ErrorResponses;
use crate::web::{AppState, HttpResult};

/// Checks ledgers, orders, accounts and Redis against each other (admin).
#[utoipa::path(get, path = "/api/audit", tag = "proof", security(("session" = [])),
    responses((status = 200, body = Audit), ErrorResponses))]
pub async fn everything(state: web::Data<AppState>, _: AdminUser) -> HttpResult {
    Ok(HttpResponse::Ok().json(audit::everything(&state.shop.pool, Some(&state.shop.locks)).await?))
}

/// Lists the locks that are held, with holder and start (admin).
#[utoipa::path(get, path = "/api/locks", tag = "proof", security(("session" = [])),
    responses((status = 200, body = [HeldLock]), ErrorResponses))]
pub async fn locks(state: web::Data<AppState>, _: AdminUser) -> HttpResult {
    let held = state.shop.locks.held().await.map_err(Error::from)?;
    Ok(HttpResponse::Ok().json(held))
}
