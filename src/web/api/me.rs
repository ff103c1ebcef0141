//! The caller's own account.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::shop::engine;
use crate::shop::model::LedgerEntry;
use crate::shop::query::ledger;
use crate::web::middleware::auth::SignedInUser;
use crate::web::middleware::body::{Json, ListQuery};
use crate::web::middleware::request_options::{DefaultOptions, idempotency_key};
use crate::web::openapi::ErrorResponses;
use crate::web::{AppState, HttpResult, command_response};

/// The caller's name and balance.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// The user name.
    pub user: String,
    /// The balance, in cents.
    pub balance_cents: i64,
}

/// The amount of a top-up.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopUpRequest {
    /// In cents: 1 to 10⁹.
    pub amount_cents: i64,
}

/// Returns the caller's name and balance.
#[utoipa::path(get, path = "/api/me", tag = "account", security(("session" = [])),
    responses((status = 200, body = Me), ErrorResponses))]
pub async fn read(state: web::Data<AppState>, user: SignedInUser) -> HttpResult {
    let balance_cents = ledger::balance(&state.shop, user.caller.id).await?.unwrap_or(0);
    Ok(HttpResponse::Ok().json(Me { user: user.caller.name.clone(), balance_cents }))
}

/// Lists the account's ledger, oldest entry first.
#[utoipa::path(get, path = "/api/me/ledger", tag = "account", security(("session" = [])),
    params(("after" = Option<i64>, Query, description = "go on behind this seq"),
           ("limit" = Option<i64>, Query, description = "1 to 1,000")),
    responses((status = 200, body = [LedgerEntry]), ErrorResponses))]
pub async fn ledger(
    state: web::Data<AppState>,
    user: SignedInUser,
    query: web::Query<ListQuery<i64>>,
) -> HttpResult {
    let after = query.after.unwrap_or(0);
    let limit = query.limit()?;
    let entries = ledger::balance_entries(&state.shop, user.caller.id, after, limit).await?;
    Ok(HttpResponse::Ok().json(entries))
}

/// Tops up the account, once per idempotency key; returns the ledger entry.
#[utoipa::path(post, path = "/api/me/top-ups", tag = "account", security(("session" = [])),
    params(("Idempotency-Key" = Option<String>, Header)), request_body = TopUpRequest, responses((status = 201, body = LedgerEntry), ErrorResponses))]
pub async fn top_up(
    state: web::Data<AppState>,
    request: HttpRequest,
    user: SignedInUser,
    DefaultOptions(options): DefaultOptions,
    amount: Json<TopUpRequest>,
) -> HttpResult {
    let amount = amount.read()?;
    let key = idempotency_key(&request)?;
    let user = user.caller.id;
    let amount_cents = amount.amount_cents;
    Ok(command_response(engine::top_up(&state.shop, &options, user, key, amount_cents).await?))
}
