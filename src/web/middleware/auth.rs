//! Authenticates requests by a bearer token or by the browser's session cookie.
//!
//! Guarantees: a request that changes something and is authenticated by its cookie alone must carry
//! the session's CSRF token, which a foreign page cannot read.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use futures_util::future::LocalBoxFuture;

use super::cookies::SESSION_COOKIE;
use crate::web::{Problem, ProblemType, app_state};
use holdfast_base::messages::message;
use holdfast_shop::Error;
use holdfast_shop::sessions::Caller;

const CSRF_HEADER: &str = "X-CSRF-Token";

#[derive(Debug, Clone)]
pub struct SignedInUser {
    pub caller: Arc<Caller>,
    pub token: String,
    /// As [`Credential::by_cookie`].
    by_cookie: bool,
}

#[derive(Debug, Clone)]
pub struct AdminUser(pub SignedInUser);

#[derive(Debug, Clone)]
pub struct LabAdmin;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub token: String,
    /// True for the session cookie, which a browser sends by itself, also for a foreign page; false
    /// for `Authorization: Bearer …`.
    by_cookie: bool,
}

impl Credential {
    pub fn of(request: &HttpRequest) -> Option<Self> {
        let Some(value) = request.headers().get(AUTHORIZATION) else {
            let token = SESSION_COOKIE.read(request)?;
            return Some(Self { token, by_cookie: true });
        };
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        is_bearer.then(|| Self { token: token.trim().to_owned(), by_cookie: false })
    }
}

/// Result of the request's session look-up. The look-up runs once: while Postgres does not respond,
/// a second one would wait for another timeout.
#[derive(Debug, Clone)]
pub struct SessionLookup(Result<Option<Arc<Caller>>, Error>);

fn known_session(request: &HttpRequest) -> Option<SessionLookup> {
    request.extensions().get::<SessionLookup>().cloned()
}

pub(super) fn known_caller(request: &HttpRequest) -> Option<Arc<Caller>> {
    known_session(request)?.0.ok().flatten()
}

/// Returns the user of the request's session, if any, and stores the result for later calls.
pub(crate) async fn find_caller(request: &HttpRequest) -> Result<Option<Arc<Caller>>, Problem> {
    match known_session(request) {
        Some(lookup) => Ok(lookup.0?),
        None => Ok(find_signed_in(request).await?.map(|signed_in| signed_in.caller)),
    }
}

/// Makes a new session that of the request: for the response to a sign-in.
pub(crate) async fn enter_session(request: &HttpRequest, token: &str) -> Result<(), Problem> {
    look_up(request, token).await.map(drop)
}

async fn look_up(request: &HttpRequest, token: &str) -> Result<SessionLookup, Problem> {
    let state = app_state(request)?;
    let lookup = SessionLookup(state.sessions.find(&state.shop, token).await);
    request.extensions_mut().insert(lookup.clone());
    Ok(lookup)
}

/// Returns the signed-in user without requiring a CSRF token: for pages that only show something,
/// and for forms, which check their own field.
pub(crate) async fn find_signed_in(request: &HttpRequest) -> Result<Option<SignedInUser>, Problem> {
    let Some(Credential { token, by_cookie }) = Credential::of(request) else { return Ok(None) };
    let lookup = match known_session(request) {
        Some(lookup) => lookup,
        None => look_up(request, &token).await?,
    };
    Ok(lookup.0?.map(|caller| SignedInUser { caller, token, by_cookie }))
}

impl FromRequest for SignedInUser {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let signed_in = find_signed_in(&request).await?;
            let signed_in = signed_in.ok_or_else(|| unauthenticated(&request))?;
            if signed_in.by_cookie && !request.method().is_safe() {
                check_csrf_header(&request, &signed_in.caller)?;
            }
            Ok(signed_in)
        })
    }
}

fn check_csrf_header(request: &HttpRequest, caller: &Caller) -> Result<(), Problem> {
    let given = request.headers().get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    if csrf_matches(caller, given) {
        Ok(())
    } else {
        let detail = message!("problem-csrf-header", header = CSRF_HEADER);
        Err(Problem::new(ProblemType::Forbidden, detail))
    }
}

impl FromRequest for AdminUser {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let signed_in = SignedInUser::from_request(request, payload);
        Box::pin(async move { ensure_admin(signed_in.await?).map(AdminUser) })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct LabReader;

impl FromRequest for LabReader {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(app_state(request).and_then(|state| state.require_lab()).map(|()| Self))
    }
}

impl FromRequest for LabAdmin {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (admin, request) = (AdminUser::from_request(request, payload), request.clone());
        Box::pin(async move {
            admin.await?;
            app_state(&request)?.require_lab().map(|()| Self)
        })
    }
}

pub(super) fn unauthenticated(request: &HttpRequest) -> Problem {
    let problem = Problem::session_over();
    match Credential::of(request) {
        Some(Credential { by_cookie: false, .. }) => problem.header(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"holdfast\", error=\"invalid_token\""),
        ),
        _ => problem,
    }
}

pub(super) fn ensure_admin(user: SignedInUser) -> Result<SignedInUser, Problem> {
    if user.caller.admin { Ok(user) } else { Err(Problem::admin_only()) }
}

#[must_use]
pub fn csrf_matches(caller: &Caller, given: Option<&str>) -> bool {
    // Compares hashes, so that the time it takes reveals nothing about the token.
    use sha2::{Digest, Sha256};
    given.is_some_and(|given| Sha256::digest(given) == Sha256::digest(&caller.csrf))
}
