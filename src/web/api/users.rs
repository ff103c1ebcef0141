//! Users and sessions.

use actix_web::{HttpRequest, HttpResponse};

use super::responses::{no_content, stored_response, with_location};
use crate::shop::users::{self, CreatedUser, Credentials, SessionToken};
use crate::web::middleware::{Json, SignedInUser};
use crate::web::{HttpResult, Problem, ProblemType, State};

/// Creates a user with an empty account.
#[utoipa::path(post, path = "/api/users", tag = "people", security(()),
    responses((status = 201, body = CreatedUser), (status = 409)))]
pub async fn create(state: State, request: HttpRequest, new: Json<Credentials>) -> HttpResult {
    let credentials = new.read()?;
    state.rate_limits.check_sign_in(&request, None).await?;
    let created = users::create(&state.shop.pool, credentials, false).await?;
    Ok(with_location(stored_response(created), "/api/me".to_owned()))
}

/// Signs in and returns a session token.
#[utoipa::path(post, path = "/api/sessions", tag = "people", security(()),
    responses((status = 201, body = SessionToken), (status = 401)))]
pub async fn sign_in(state: State, request: HttpRequest, user: Json<Credentials>) -> HttpResult {
    let credentials = user.read()?;
    let name = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, Some(&name)).await?;
    match users::sign_in(&state.shop, credentials).await? {
        Some(session) => {
            state.rate_limits.trust_address(&request, &name).await;
            let created = HttpResponse::Created().json(session);
            Ok(with_location(created, "/api/sessions".to_owned()))
        }
        None => Err(Problem::new(ProblemType::Unauthenticated, "name or password is wrong")),
    }
}

/// Signs out: ends the session of this request.
#[utoipa::path(delete, path = "/api/sessions", tag = "people", responses((status = 204)))]
pub async fn sign_out(state: State, user: SignedInUser) -> HttpResult {
    users::sign_out(&state.shop, &user.token).await?;
    state.sessions.invalidate(&user.token).await;
    no_content()
}
