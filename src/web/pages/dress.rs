//! Middleware that renders problems as pages for browsers.
//!
//! It is the outermost middleware, outside of the envelope as well. A program (no `text/html` in
//! `Accept`, or an address such as `/api`) receives the problem as it is. The problem
//! `unauthenticated` becomes a redirect to the sign-in page, which leads back.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest};
use askama::Template;

use super::frame::Frame;
use super::notice::Notice;
use super::{html, see_other, sign_in};
use crate::web::HttpResult;
use crate::web::problems::{Kind, Problem};

/// Addresses whose problems are never rendered as pages.
const FOR_PROGRAMS: [&str; 5] = ["/api", "/healthz", "/readyz", "/metrics", "/static"];

#[derive(Debug, Template)]
#[template(path = "refusal.html")]
struct RefusalPage {
    frame: Frame,
    notice: Notice,
    status: StatusCode,
}

pub async fn dress<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let for_a_person = wants_a_page(request.request());
    let bare = if for_a_person { Frame::bare(request.request()).ok() } else { None };
    let response = match next.call(request).await {
        Ok(response) => response,
        Err(error) => return Err(late(error, bare)),
    };
    let problem = response.response().error().and_then(|error| error.as_error::<Problem>());
    let Some(problem) = problem.filter(|_| for_a_person).cloned() else {
        return Ok(response.map_into_left_body());
    };
    let Ok(mut page) = dressed(response.request(), &problem).await else {
        return Ok(response.map_into_left_body());
    };
    let (request, plain) = response.into_parts();
    for (name, value) in plain.headers() {
        if name != CONTENT_TYPE && name != CONTENT_LENGTH {
            page.headers_mut().append(name.clone(), value.clone());
        }
    }
    Ok(ServiceResponse::new(request, page).map_into_right_body())
}

/// Renders the timeout of a request as a page. The request is gone by then, so `frame` was built
/// before it ran.
fn late(error: Error, frame: Option<Frame>) -> Error {
    let (Some(problem), Some(frame)) = (error.as_error::<Problem>(), frame) else { return error };
    let (status, notice) = (problem.code(), Notice::from(problem));
    match html(status, &RefusalPage { frame, notice, status }) {
        Ok(page) => InternalError::from_response(error, page).into(),
        Err(_) => error,
    }
}

fn wants_a_page(request: &HttpRequest) -> bool {
    let path = request.path();
    let under =
        |top: &&str| path.strip_prefix(*top).is_some_and(|r| r.is_empty() || r.starts_with('/'));
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html")) && !FOR_PROGRAMS.iter().any(under)
}

async fn dressed(request: &HttpRequest, problem: &Problem) -> HttpResult {
    if problem.kind() == Kind::Unauthenticated {
        return Ok(see_other(&sign_in::address(&back_to(request))));
    }
    // If Postgres did not respond, it is not queried again: a problem must be shown within two
    // seconds. Nor may a rate-limited client cause more work.
    let frame = match problem.kind() {
        Kind::Unavailable | Kind::Overloaded | Kind::TooManyRequests => Frame::bare(request)?,
        _ => Frame::of(request).await?,
    };
    let status = problem.code();
    html(status, &RefusalPage { frame, notice: Notice::from(problem), status })
}

/// Returns the page to return to after signing in: the requested one, or the form's page.
fn back_to(request: &HttpRequest) -> String {
    let path = request.path();
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return request.uri().path_and_query().map_or(path, |all| all.as_str()).to_owned();
    }
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/basket".to_owned(),
        Some((parent, _)) => parent.to_owned(),
    }
}
