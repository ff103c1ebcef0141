//! Users and sessions.

use actix_web::{HttpRequest, HttpResponse, web};

use crate::shop::users::{self, CreatedUser, Credentials, SessionToken};
use crate::web::middleware::auth::SignedInUser;
use crate::web::middleware::body::Json;
use crate::web::openapi::ErrorResponses;
use crate::web::problems::{Problem, ProblemType};
use crate::web::{AppState, HttpResult, stored_response};

/// Creates a user with an empty account.
#[utoipa::path(post, path = "/api/users", tag = "people", request_body = Credentials,
    responses((status = 201, body = CreatedUser), ErrorResponses))]
pub async fn create(
    state: web::Data<AppState>,
    request: HttpRequest,
    credentials: Json<Credentials>,
) -> HttpResult {
    let credentials = credentials.read()?;
    state.rate_limits.check_sign_in(&request, None).await?;
    Ok(stored_response(users::create(&state.shop.pool, credentials, false).await?))
}

/// Signs in and returns a session token.
#[utoipa::path(post, path = "/api/sessions", tag = "people", request_body = Credentials,
    responses((status = 201, body = SessionToken), ErrorResponses))]
pub async fn sign_in(
    state: web::Data<AppState>,
    request: HttpRequest,
    credentials: Json<Credentials>,
) -> HttpResult {
    let credentials = credentials.read()?;
    let name = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, Some(&name)).await?;
    match users::sign_in(&state.shop, credentials).await? {
        Some(session) => {
            state.rate_limits.trust_address(&request, &name).await;
            Ok(HttpResponse::Created().json(session))
        }
        None => Err(Problem::new(ProblemType::Unauthenticated, "name or password is wrong")),
    }
}

/// Signs out: ends the session of this request.
#[utoipa::path(delete, path = "/api/sessions", tag = "people", security(("session" = [])),
    responses((status = 204), ErrorResponses))]
pub async fn sign_out(state: web::Data<AppState>, user: SignedInUser) -> HttpResult {
    users::sign_out(&state.shop, &user.token).await?;
    state.sessions.invalidate(&user.token).await;
    Ok(HttpResponse::NoContent().finish())
}
