//! Users and sessions.

use actix_web::http::header::LINK;
use actix_web::web::{Path, Query};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::responses::{no_content, stored_response};
use crate::shop::sessions::{self, Session, SessionId, SessionToken};
use crate::shop::users::{self, CreatedUser, Credentials};
use crate::web::middleware::{Json, ListParameters, ListQuery, SignedInUser};
use crate::web::{HttpResult, Problem, ProblemType, State};

/// A page of sessions.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionList {
    /// The latest first.
    pub items: Vec<Session>,
    /// The cursor `after` of the next page.
    pub next: Option<SessionId>,
}

/// Creates a user with an empty account.
#[utoipa::path(post, path = "/api/users", tag = "people", security(()),
    responses((status = 201, body = CreatedUser)))]
pub async fn create(state: State, request: HttpRequest, new: Json<Credentials>) -> HttpResult {
    let credentials = new.read()?;
    state.rate_limits.check_sign_in(&request, None).await?;
    let (pool, min_length) = (&state.shop.pool, state.min_password_length);
    Ok(stored_response(users::create(pool, credentials, false, min_length).await?))
}

/// Signs in and returns a session token.
#[utoipa::path(post, path = "/api/sessions", tag = "people", security(()),
    responses((status = 201, body = SessionToken)))]
pub async fn sign_in(state: State, request: HttpRequest, user: Json<Credentials>) -> HttpResult {
    let credentials = user.read()?;
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
#[utoipa::path(delete, path = "/api/sessions", tag = "people", responses((status = 204)))]
pub async fn sign_out(state: State, user: SignedInUser) -> HttpResult {
    sessions::sign_out(&state.shop, &user.token).await?;
    state.sessions.invalidate(&user.token).await;
    no_content()
}

/// Lists the caller's sessions, the latest first.
#[utoipa::path(get, path = "/api/sessions", tag = "people", params(ListParameters),
    responses((status = 200, body = SessionList)))]
pub async fn list_sessions(
    state: State,
    user: SignedInUser,
    query: Query<ListQuery<Uuid>>,
) -> HttpResult {
    let (limit, after) = (query.limit()?, query.after.map(SessionId));
    let (caller, token) = (user.caller.id, &user.token);
    let mut items = sessions::list(&state.shop, caller, token, after, limit + 1).await?;
    let length = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = items.len() > length;
    items.truncate(length);
    let next = items.last().filter(|_| has_more).map(|session| session.id);
    let mut response = HttpResponse::Ok();
    if let Some(SessionId(id)) = next {
        let link = format!("</api/sessions?after={id}&limit={limit}>; rel=\"next\"");
        response.insert_header((LINK, link));
    }
    Ok(response.json(SessionList { items, next }))
}

/// Ends one of the caller's sessions; the other replicas know within five seconds.
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "people",
    responses((status = 204)))]
pub async fn end_session(state: State, user: SignedInUser, id: Path<String>) -> HttpResult {
    let unknown = || Problem::not_found(format!("you have no session {id}"));
    let session = Uuid::parse_str(&id).map(SessionId).map_err(|_| unknown())?;
    if !sessions::end(&state.shop, user.caller.id, session).await? {
        return Err(unknown());
    }
    state.sessions.invalidate_user(user.caller.id)?;
    no_content()
}
