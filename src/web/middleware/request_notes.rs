//! Middleware for request ids, common headers, and the timeout of a request.
//!
//! The id is the replica's own, because ledgers name it; the client's `X-Request-Id` is logged
//! beside it. Only while the lab is on, a client's UUID is the id: the lab and the tests compare
//! requests with ledgers. The outcome of a command that takes longer than [`REQUEST_TIMEOUT`] is
//! unknown, since a transaction that has begun runs to its end.
//! Tests: `tests/it/rejections.rs`, `tests/it/slow_clients.rs`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, ResponseError as _};
use tokio::time::timeout;
use tracing::{Instrument as _, Span, error_span, field};
use uuid::Uuid;

use crate::telemetry;
use crate::web::{AppState, Problem, ProblemType, State};
use holdfast_base::messages::message;
use holdfast_base::metrics::{SECONDS, define_metrics};
use holdfast_shop::REQUEST_TIMEOUT;

define_metrics! {
    HTTP_REQUEST_DURATION: "holdfast_http_request_duration_seconds",
        Histogram ["method", "route", "status"] SECONDS,
        "From the arrival of a request to its response";
}

const REPLICA: HeaderName = HeaderName::from_static("holdfast-replica");
const STRATEGY: HeaderName = HeaderName::from_static("holdfast-strategy");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");
const MAX_CLIENT_ID_BYTES: usize = 128;

/// The metric label of a method that is not HTTP's, and of none.
const OTHER_METHOD: &str = "other";

/// Content security policy: nothing from other origins, no inline scripts or styles.
const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

pub(crate) async fn request_notes(
    mut request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let started = Instant::now();
    let notes = Rc::new(RequestNotes::of(&request));
    request.extensions_mut().insert(Rc::clone(&notes));

    let method = method_label(request.method());
    // HEAD is served like GET; the connection omits the body.
    if request.method() == Method::HEAD {
        request.head_mut().method = Method::GET;
    }

    let span = notes.span();
    telemetry::continue_trace(&span, |name| request.headers().get(name)?.to_str().ok());
    let serving = timeout(REQUEST_TIMEOUT, next.call(request)).instrument(span.clone());
    let result = serving.await;

    // The span of the response is that of the request, and ends with this function.
    let _in_span = span.enter();
    let Ok(response) = result else {
        let (problem, route) = late_problem(&notes);
        let mut headers = HeaderMap::new();
        notes.add_headers(&mut headers);
        let problem =
            headers.into_iter().fold(problem, |problem, (name, value)| problem.header(name, value));
        notes.record(method, route, problem.code(), started);
        return Err(problem.into());
    };

    let mut response = response?;
    let status = response.status();
    // A command's was looked up when it began.
    let route = notes.command_route.take().or_else(|| response.request().match_pattern());
    notes.add_headers(response.headers_mut());
    notes.record(method, route, status, started);
    Ok(response)
}

/// Returns the problem of a request that took too long, and its route if it began a command.
fn late_problem(notes: &RequestNotes) -> (Problem, Option<String>) {
    let detail = message!("problem-late-request", seconds = REQUEST_TIMEOUT.as_secs());
    match notes.command_route.take() {
        Some(route) => {
            let problem = Problem::new(ProblemType::Unavailable, detail);
            (problem.with("outcome", "unknown"), Some(route))
        }
        None => (Problem::new(ProblemType::Overloaded, detail), None),
    }
}

/// Returns the response to bytes that are not a request, with the headers of every response, and
/// counts it.
pub fn respond_without_request(
    state: &AppState,
    problem: &Problem,
    started: Instant,
) -> HttpResponse {
    let notes = RequestNotes::new(Some(state), Uuid::now_v7(), None);
    let _in_span = notes.span().entered();
    let mut response = problem.error_response();
    notes.add_headers(response.headers_mut());
    notes.record(OTHER_METHOD, None, response.status(), started);
    response
}

/// Notes about a request, for its response and the log. The request's handler shares them.
#[derive(Debug)]
pub(super) struct RequestNotes {
    /// The id in logs and ledgers.
    pub id: Uuid,
    /// The client's own id, unless it is `id`.
    client_id: Option<String>,
    replica: HeaderValue,
    pub strategy: Cell<&'static str>,
    /// The route of a request that began a command: if it then takes too long, the outcome of the
    /// command is unknown.
    pub command_route: RefCell<Option<String>>,
}

impl RequestNotes {
    fn of(request: &ServiceRequest) -> Self {
        let state = request.app_data::<State>();
        let given = request.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok());
        let adopted = given
            .filter(|_| state.is_some_and(|state| state.lab))
            .and_then(|id| Uuid::parse_str(id).ok());
        let client_id = given.filter(|id| adopted.is_none() && id.len() <= MAX_CLIENT_ID_BYTES);
        let state = state.map(|state| state.as_ref());
        let client_id = client_id.map(str::to_owned);
        Self::new(state, adopted.unwrap_or_else(Uuid::now_v7), client_id)
    }

    fn new(state: Option<&AppState>, id: Uuid, client_id: Option<String>) -> Self {
        Self {
            id,
            client_id,
            replica: header_value(state.map_or("?", |state| &state.replica)),
            strategy: Cell::new(state.map_or("?", |state| state.shop.strategy.name)),
            command_route: RefCell::default(),
        }
    }

    fn span(&self) -> Span {
        error_span!(
            parent: None,
            "request",
            request_id = %self.id,
            client_request_id = self.client_id.as_deref(),
            trace_id = field::Empty,
            otel.kind = telemetry::is_exporting().then_some("server"),
            otel.status_code = field::Empty,
        )
    }

    fn add_headers(&self, headers: &mut HeaderMap) {
        // Another one's, if it executed the command.
        if !headers.contains_key(REPLICA) {
            headers.insert(REPLICA, self.replica.clone());
        }
        headers.insert(STRATEGY, HeaderValue::from_static(self.strategy.get()));
        headers.insert(REQUEST_ID, header_value(&self.id.to_string()));
        if let Some(id) = &self.client_id {
            headers.insert(CLIENT_REQUEST_ID, header_value(id));
        }
        add_security_headers(headers);
    }

    /// Logs and counts a response. A route of `None` is one of no handler, or unknown.
    fn record(
        &self,
        method: &'static str,
        route: Option<String>,
        status: StatusCode,
        started: Instant,
    ) {
        let (route, status) = (route.unwrap_or_else(|| "(none)".to_owned()), status.as_u16());
        let elapsed = started.elapsed();
        tracing::debug!(method, route, status, ?elapsed, "request completed");
        telemetry::describe_response(&Span::current(), method, &route, status);
        metrics::histogram!(
            HTTP_REQUEST_DURATION,
            "method" => method, "route" => route, "status" => status.to_string(),
        )
        .record(elapsed.as_secs_f64());
    }
}

fn add_security_headers(headers: &mut HeaderMap) {
    let defaults = [
        (CONTENT_SECURITY_POLICY, SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in defaults {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// Returns the method as a metric label. Methods that clients invent share one, so the number
/// of labels is bounded.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER_METHOD)
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::super::command_context::begin_command;
    use super::*;

    #[test]
    fn only_late_command_has_unknown_outcome() {
        let request = TestRequest::default().to_http_request();
        let notes = Rc::new(RequestNotes::new(None, Uuid::now_v7(), None));
        request.extensions_mut().insert(Rc::clone(&notes));
        let late = late_problem(&notes).0;
        assert_eq!(late.problem_type(), ProblemType::Overloaded);
        assert_eq!(late.member("outcome"), None);
        begin_command(&request);
        let late = late_problem(&notes).0;
        assert_eq!(late.problem_type(), ProblemType::Unavailable);
        assert_eq!(late.member("outcome"), Some(&"unknown".into()));
    }
}
