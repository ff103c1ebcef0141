//! Users and sessions.

use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use uuid::Uuid;

use super::lists::{Page, page};
use super::responses::{no_content, stored_response, with_location};
use crate::web::middleware::{Json, ListParameters, SignedInUser, begin_command, list_query};
use crate::web::{HttpResult, Problem, ProblemType, State};
use holdfast_base::messages::message;
use holdfast_shop::sessions::{self, Session, SessionId, SessionToken};
use holdfast_shop::users::{self, CreatedUser, Credentials, SignIn};

/// Creates a user, with a welcome credit of 100.00 on the account.
#[utoipa::path(post, path = "/api/users", tag = "people", security(()),
    responses((status = 201, body = CreatedUser), (status = 409)))]
pub(crate) async fn create(
    state: State,
    request: HttpRequest,
    new: Json<Credentials>,
) -> HttpResult {
    state.require_open_sign_up()?;
    let credentials = new.read()?;
    state.rate_limits.check_sign_in(&request, None).await?;
    let (pool, min_length) = (&state.shop.pool, state.min_password_length);
    let request_id = begin_command(&request);
    let created = users::create(pool, credentials, false, Some(request_id), min_length).await?;
    Ok(with_location(stored_response(created), "/api/me".to_owned()))
}

/// Signs in and returns a session token.
#[utoipa::path(post, path = "/api/sessions", tag = "people", security(()),
    responses((status = 201, body = SessionToken), (status = 401)))]
pub(crate) async fn sign_in(
    state: State,
    request: HttpRequest,
    user: Json<Credentials>,
) -> HttpResult {
    let credentials = user.read()?;
    let name = credentials.user.clone();
    state.rate_limits.check_sign_in(&request, Some(&name)).await?;
    match users::sign_in(&state.shop, credentials).await? {
        SignIn::Session(session) => {
            state.rate_limits.trust_address(&request, &name).await;
            let created = HttpResponse::Created().json(session);
            Ok(with_location(created, "/api/sessions".to_owned()))
        }
        SignIn::Wrong => {
            Err(Problem::new(ProblemType::Unauthenticated, message!("problem-sign-in-wrong")))
        }
        SignIn::Disabled => {
            Err(Problem::new(ProblemType::Unauthenticated, message!("problem-sign-in-disabled")))
        }
    }
}

/// Signs out: ends the session of this request.
#[utoipa::path(delete, path = "/api/sessions", tag = "people", responses((status = 204)))]
pub(crate) async fn sign_out(state: State, user: SignedInUser) -> HttpResult {
    sessions::sign_out(&state.shop, &user.token).await?;
    state.sessions.invalidate(&user.token).await;
    no_content()
}

/// Lists the caller's sessions, the latest first.
#[utoipa::path(get, path = "/api/sessions", tag = "people", params(ListParameters<SessionId>),
    responses((status = 200, body = Page<Session>)))]
pub(crate) async fn list_sessions(
    state: State,
    request: HttpRequest,
    user: SignedInUser,
) -> HttpResult {
    let (after, limit) = list_query(&request)?;
    let (caller, after) = (user.caller.id, after.map(SessionId));
    let sessions = sessions::list(&state.shop, caller, &user.token, after, limit + 1).await?;
    page(&request, sessions, limit, |session| session.id.0)
}

/// Ends one of the caller's sessions; the other replicas know within five seconds.
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "people",
    responses((status = 204), (status = 404)))]
pub(crate) async fn end_session(state: State, user: SignedInUser, id: Path<String>) -> HttpResult {
    let unknown = || Problem::missing(message!("problem-missing-session", id = id.as_str()));
    let session = Uuid::parse_str(&id).map(SessionId).map_err(|_| unknown())?;
    if !sessions::end(&state.shop, user.caller.id, session).await? {
        return Err(unknown());
    }
    state.sessions.invalidate_user(user.caller.id)?;
    no_content()
}
