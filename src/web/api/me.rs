//! The caller's own account.

use actix_web::HttpRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::lists::{Page, page};
use super::responses::{creation_response, json, no_content};
use crate::web::middleware::{
    DefaultContext, Json, KeyParameters, ListParameters, SignedInUser, begin_command,
    idempotency_key, list_query,
};
use crate::web::{HttpResult, State};
use holdfast_shop::engine;
use holdfast_shop::model::LedgerEntry;
use holdfast_shop::query::ledger;
use holdfast_shop::users::{self, PasswordChange};

/// The caller's name and balances.
#[derive(Debug, Serialize, ToSchema)]
pub struct Me {
    /// The user name.
    pub user: String,
    /// The balance, in cents.
    pub balance_cents: i64,
    /// The balance of the lab account, in cents: it pays for items of the lab, and for nothing in
    /// the shop.
    pub lab_balance_cents: i64,
}

/// The amount of a top-up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopUpRequest {
    /// In cents: 1 to 10⁹.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub amount_cents: i64,
}

/// Returns the caller's name and balances.
#[utoipa::path(get, path = "/api/me", tag = "account", responses((status = 200, body = Me)))]
pub(crate) async fn read(state: State, user: SignedInUser) -> HttpResult {
    let balances = ledger::balances(&state.shop, user.caller.id).await?;
    json(Me {
        user: user.caller.name.clone(),
        balance_cents: balances.own_cents,
        lab_balance_cents: balances.lab_cents,
    })
}

/// Lists the account's ledger, oldest entry first.
#[utoipa::path(get, path = "/api/me/ledger", tag = "account", params(ListParameters<i64>),
    responses((status = 200, body = Page<LedgerEntry>)))]
pub(crate) async fn ledger(state: State, request: HttpRequest, user: SignedInUser) -> HttpResult {
    let (after, limit) = list_query(&request)?;
    let (user, after) = (user.caller.id, after.unwrap_or(0));
    let entries = ledger::balance_entries(&state.shop, user, after, limit + 1).await?;
    page(&request, entries, limit, |entry| entry.seq)
}

/// Changes the caller's password. The caller's other sessions end.
#[utoipa::path(post, path = "/api/me/password", tag = "account", responses((status = 204)))]
pub(crate) async fn change_password(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
    change: Json<PasswordChange>,
) -> HttpResult {
    let change = change.read()?;
    state.rate_limits.check_sign_in(&request, user.caller.account_name()).await?;
    let (caller, min_length) = (user.caller.id, state.min_password_length);
    begin_command(&request);
    users::change_password(&state.shop, caller, &user.token, change, min_length).await?;
    state.sessions.invalidate_user(caller)?;
    no_content()
}

/// Tops up the account, once per idempotency key; returns the ledger entry.
#[utoipa::path(post, path = "/api/me/top-ups", tag = "account", params(KeyParameters),
    responses((status = 201, body = LedgerEntry)))]
pub(crate) async fn top_up(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
    context: DefaultContext,
    amount: Json<TopUpRequest>,
) -> HttpResult {
    let cents = amount.read()?.amount_cents;
    let key = idempotency_key(&request)?;
    let entry = engine::top_up(&state.shop, &context, user.caller.id, key, cents).await;
    creation_response(entry, context.probe(), |entry: TopUp| {
        format!("/api/me/ledger?after={}&limit=1", entry.seq - 1)
    })
}

/// What the address of a ledger entry needs of it.
#[derive(Debug, Deserialize)]
struct TopUp {
    seq: i64,
}
