//! Users, as admins see and change them.

use actix_web::HttpRequest;
use actix_web::web::Path;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::lists::{Page, page};
use super::responses::{command_response, json};
use crate::web::middleware::{
    AdminUser, Json, KeyParameters, ListParameters, Query, begin_command, idempotency_key,
    list_query,
};
use crate::web::{HttpResult, Problem, State};
use holdfast_base::messages::message;
use holdfast_shop::probe::Probe;
use holdfast_shop::query::users::{self, UserAccount};
use holdfast_shop::user_admin::{self, UserCommand};
use holdfast_shop::{Execution, Failure, UserId};

/// Which users are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UserFilter {
    /// A part of the name, in any case.
    #[serde(default)]
    search: String,
}

/// A change of a user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// True disables the user, whose sessions end; false enables the user again.
    disabled: bool,
}

/// A new password.
// Not `Debug`: it is never printed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// 8 to 256 characters, unless the shop has another minimum.
    new: String,
}

/// Lists users by name (admin).
#[utoipa::path(get, path = "/api/admin/users", tag = "admin",
    params(ListParameters<String>, UserFilter),
    responses((status = 200, body = Page<UserAccount>), (status = 403)))]
pub(crate) async fn list_users(
    state: State,
    request: HttpRequest,
    _: AdminUser,
    filter: Query<UserFilter>,
) -> HttpResult {
    let (after, limit) = list_query::<String>(&request)?;
    let (search, after) = (filter.read()?.search, after.unwrap_or_default());
    let found = users::list(&state.shop, &search, &after, limit + 1).await?;
    page(&request, found, limit, |account| account.user.clone())
}

/// Returns a user (admin).
#[utoipa::path(get, path = "/api/admin/users/{name}", tag = "admin",
    responses((status = 200, body = UserAccount), (status = 403)))]
pub(crate) async fn read_user(state: State, _: AdminUser, name: Path<String>) -> HttpResult {
    json(find(&state, &name).await?.1)
}

/// The parts of a request to change a user, without the name, which OpenAPI finds only among the
/// arguments of the handler.
type UserRequest = (State, HttpRequest, AdminUser);

/// Disables a user, or enables one again (admin), once per idempotency key. A disabled user is
/// signed out everywhere within five seconds, and cannot sign in; orders, account and ledgers stay.
#[utoipa::path(patch, path = "/api/admin/users/{name}", tag = "admin", params(KeyParameters),
    responses((status = 200, body = UserAccount)))]
pub(crate) async fn change_user(
    parts: UserRequest,
    name: Path<String>,
    change: Json<UserChange>,
) -> HttpResult {
    let disabled = change.read()?.disabled;
    execute(parts, &name, async |state, command| {
        user_admin::set_disabled(&state.shop, command, disabled).await
    })
    .await
}

/// Ends all sessions of a user (admin), once per idempotency key; the other replicas know within
/// five seconds.
#[utoipa::path(post, path = "/api/admin/users/{name}/end-sessions", tag = "admin",
    params(KeyParameters), responses((status = 200, body = UserAccount), (status = 422)))]
pub(crate) async fn end_user_sessions(parts: UserRequest, name: Path<String>) -> HttpResult {
    execute(parts, &name, async |state, command| {
        user_admin::end_sessions(&state.shop, command).await
    })
    .await
}

/// Sets a user's password (admin), once per idempotency key; the sessions end. A retry with the
/// same key changes nothing, also with another password: nothing of one is kept to compare.
#[utoipa::path(post, path = "/api/admin/users/{name}/password", tag = "admin",
    params(KeyParameters), responses((status = 200, body = UserAccount)))]
pub(crate) async fn set_user_password(
    parts: UserRequest,
    name: Path<String>,
    password: Json<NewPassword>,
) -> HttpResult {
    let new = password.read()?.new;
    execute(parts, &name, async |state, command| {
        let min_length = state.min_password_length;
        user_admin::reset_password(&state.shop, command, new.clone(), min_length).await
    })
    .await
}

async fn execute(
    (state, request, admin): UserRequest,
    name: &str,
    change: impl AsyncFnOnce(&State, &UserCommand) -> Result<Execution, Failure>,
) -> HttpResult {
    let key = idempotency_key(&request)?;
    let (user, account) = find(&state, name).await?;
    let admin = admin.0.caller.id;
    let request_id = begin_command(&request);

    // The stored name: with another form of it, a retry would be another request.
    let command = UserCommand { admin, user, name: account.user, key, request_id };
    let changed = change(&state, &command).await;
    state.sessions.invalidate_user(user)?;
    command_response(changed, &Probe::Off)
}

pub(in crate::web) async fn find(
    state: &State,
    name: &str,
) -> Result<(UserId, UserAccount), Problem> {
    let found = users::find(&state.shop, name).await?;
    found.ok_or_else(|| Problem::missing(message!("problem-missing-user", name)))
}
