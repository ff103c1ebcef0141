//! Problems as pages: middleware that renders them for browsers, and the page on their types.
//!
//! The middleware is outside of all others. A program (no `text/html` in `Accept`, or an address
//! such as `/api`) receives the problem as it is; `unauthenticated` becomes a redirect to the
//! sign-in page, which leads back.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::Path;
use actix_web::{Error, HttpRequest, HttpResponse};
use askama::Template;

use super::join::join_url;
use super::layout::Layout;
use super::rejection::RejectionNotice;
use super::respond::html;
use super::sign_in::sign_in_url;
use crate::web::middleware::SESSION_COOKIE;
use crate::web::middleware::csrf::referring_path;
use crate::web::routes::is_under;
use crate::web::{HttpResult, Problem, ProblemType, app_state, see_other};
use holdfast_base::messages::message;

const PROGRAM_PATHS: [&str; 5] = ["/api", "/healthz", "/readyz", "/metrics", "/static"];

#[derive(Debug, Template)]
#[template(path = "rejection.html")]
struct RejectionPage {
    layout: Layout,
    notice: RejectionNotice,
    status: StatusCode,
    /// The address of the page that the visitor comes from.
    back: String,
}

impl RejectionPage {
    fn new(layout: Layout, problem: &Problem, back: String) -> Self {
        let mut notice = RejectionNotice::new(problem, layout.language);
        // Loaded again, the form would be empty: the browser's own way back has its text.
        let is_too_large = problem.problem_type() == ProblemType::PayloadTooLarge;
        let back = if is_too_large { "/shop".to_owned() } else { back };

        if layout.class && problem.problem_type() == ProblemType::Forbidden {
            if layout.is_student() && problem.is_admin_only() {
                notice.meaning = None;
                notice.advice = layout.text("class-forbidden");
                notice.link = Some(("/lab".into(), layout.text("class-forbidden-link")));
            } else if layout.is_student() {
                // With no other name to sign in with.
                notice.link = None;
            } else if layout.caller.is_none() {
                notice.link = Some(("/join".into(), layout.text("join-title")));
            }
        }
        Self { layout, notice, status: problem.code(), back }
    }
}

#[derive(Debug, Template)]
#[template(path = "problems.html")]
struct ProblemsPage {
    layout: Layout,
}

pub(crate) async fn list(request: HttpRequest) -> HttpResult {
    html(StatusCode::OK, &ProblemsPage { layout: Layout::of(&request).await? })
}

/// Leads from the `type` of a problem to its place on the page.
pub(crate) async fn show(name: Path<String>) -> HttpResult {
    let unknown = || Problem::missing(message!("problem-missing-problem", name = name.as_str()));
    let definition = ProblemType::named(&name).ok_or_else(unknown)?.definition();
    Ok(see_other(&format!("/problems#{}", definition.name)))
}

pub(crate) async fn render_problems<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let for_a_person = accepts_html(request.request());
    let bare = if for_a_person { Layout::minimal(request.request()).ok() } else { None };
    let bare = bare.map(|layout| (layout, back_path(request.request())));

    let response = match next.call(request).await {
        Ok(response) => response,
        Err(error) => return Err(timeout_page(error, bare)),
    };

    let problem = response.response().error().and_then(|error| error.as_error::<Problem>());
    let Some(problem) = problem.filter(|_| for_a_person).cloned() else {
        return Ok(response.map_into_left_body());
    };
    let Ok(mut page) = problem_page(response.request(), &problem).await else {
        return Ok(response.map_into_left_body());
    };

    let (request, plain) = response.into_parts();
    copy_headers(plain.headers(), &mut page);
    Ok(ServiceResponse::new(request, page).map_into_right_body())
}

fn copy_headers(headers: &HeaderMap, page: &mut HttpResponse) {
    for (name, value) in headers {
        // These describe the problem's own body.
        if ![CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING].contains(name) {
            page.headers_mut().append(name.clone(), value.clone());
        }
    }
}

/// Renders the timeout of a request as a page. The request is gone by then, so the layout and the
/// way back were built before it ran.
fn timeout_page(error: Error, bare: Option<(Layout, String)>) -> Error {
    let (Some(problem), Some((layout, back))) = (error.as_error::<Problem>(), bare) else {
        return error;
    };
    let Ok(mut page) = html(problem.code(), &RejectionPage::new(layout, problem, back)) else {
        return error;
    };
    copy_headers(error.error_response().headers(), &mut page);
    InternalError::from_response(error, page).into()
}

pub(super) fn accepts_html(request: &HttpRequest) -> bool {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
        && !is_under(request.path(), &PROGRAM_PATHS)
}

async fn problem_page(request: &HttpRequest, problem: &Problem) -> HttpResult {
    if problem.problem_type() == ProblemType::Unauthenticated {
        let has_ended = SESSION_COOKIE.read(request).is_some();
        let next = return_path(request);
        let address = match app_state(request)?.class {
            true => join_url(&next),
            false => sign_in_url(&next, has_ended),
        };
        return Ok(see_other(&address));
    }

    // If Postgres did not respond, it is not queried again: a problem must be shown within two
    // seconds. Nor may a rate-limited client cause more work, and another host's page must not
    // learn who is signed in.
    let layout = match problem.problem_type() {
        ProblemType::Unavailable
        | ProblemType::Overloaded
        | ProblemType::TooManyRequests
        | ProblemType::WrongHost => Layout::minimal(request)?,
        _ => Layout::of(request).await?,
    };
    let mut page = RejectionPage::new(layout, problem, back_path(request));
    let class_url = app_state(request)?.class_url.as_ref();
    if let Some(url) = class_url.filter(|_| problem.problem_type() == ProblemType::WrongHost) {
        let address = format!("{url}/join");
        let variables = [("address", address.as_str().into())];
        page.notice.advice = page.layout.text_with("class-wrong-host", &variables);
        page.notice.link = Some((address.into(), page.layout.text("join-title")));
    }
    html(problem.code(), &page)
}

/// Returns the page that the visitor comes from, if the browser says so and it is another one of
/// this site; otherwise the form's page, or where one begins.
fn back_path(request: &HttpRequest) -> String {
    let requested = return_path(request);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let from = referring_path(request).filter(|from| !is_read || *from != requested);

    match from {
        Some(from) => from,
        None if !is_read => requested,
        None if is_under(request.path(), &["/lab"]) => "/lab".to_owned(),
        None => "/shop".to_owned(),
    }
}

/// Returns the page to return to after signing in: the requested one, or the form's page.
fn return_path(request: &HttpRequest) -> String {
    let path = request.path();
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return request.uri().path_and_query().map_or(path, |all| all.as_str()).to_owned();
    }
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/basket".to_owned(),
        Some(("/lab", "runs" | "files")) => "/lab/runs".to_owned(),
        Some((parent, _)) => parent.to_owned(),
    }
}
