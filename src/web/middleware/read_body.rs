//! Middleware that reads the body of a request before its handler runs ([`read_body`]), and keeps
//! an unread one until the response has been sent ([`close_unread`]): actix then closes the
//! connection, where it would read a dropped chunked body for ever.
//!
//! While the replica shuts down, every connection is closed after its response, so that clients
//! move on. A request to change the protocol is served as if it had not asked for that.
//! Tests: `tests/it/slow_clients.rs`, `tests/it/shutdown.rs`, `tests/it/upgrade_requests.rs`.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, EitherBody, MessageBody};
use actix_web::dev::{Payload, RequestHead, ResponseHead, ServiceRequest, ServiceResponse};
use actix_web::error::{InternalError, PayloadError};
use actix_web::http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING, UPGRADE,
};
use actix_web::http::{ConnectionType, Method};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage, HttpResponse};
use futures_util::Stream;
use tokio::time::timeout;

use super::body::{MAX_BODY_BYTES, wrong_media_type};
use crate::web::client_stream::{ConnectionPhase, RequestInProgress};
use crate::web::{Problem, ProblemType, State};
use holdfast_base::messages::message;

/// Time in which a body must arrive. Less than [`REQUEST_TIMEOUT`](holdfast_shop::REQUEST_TIMEOUT),
/// so that the rest is enough for most commands; the longest body needs 13 kB/s.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Additional time for a process that was paused: its timers expire before it reads what arrived.
const PAUSE_GRACE: Duration = Duration::from_millis(100);
/// Paths whose handlers read larger bodies themselves, once they know who sends them.
const STREAMED_PATHS: [&str; 2] = ["/lab/files", "/lab/judged"];

pub(crate) async fn read_body<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let payload = request.take_payload();
    let is_empty = matches!(payload, Payload::None);
    request.set_payload(payload);
    if is_empty || STREAMED_PATHS.contains(&request.path()) {
        return Ok(next.call(request).await?.map_into_left_body());
    }

    match collect(&mut request).await {
        Ok(bytes) => {
            request.set_payload(Payload::from(bytes));
            Ok(next.call(request).await?.map_into_left_body())
        }
        Err(problem) => Ok(request.error_response(problem).map_into_right_body()),
    }
}

/// Returns the `Content-Length` of a request; 0 if there is none.
pub fn declared_length(headers: &HeaderMap) -> usize {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

async fn collect(request: &mut ServiceRequest) -> Result<Bytes, Problem> {
    // Decompressed, 64 KiB can be a thousand times as long.
    if request.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(wrong_media_type(message!("problem-compressed-body")));
    }

    let mut read = pin!(request.extract::<Bytes>());
    let in_time = match timeout(BODY_TIMEOUT, &mut read).await {
        Ok(result) => Ok(result),
        Err(_) => timeout(PAUSE_GRACE, read).await,
    };

    match in_time {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if matches!(error.as_error(), Some(PayloadError::Overflow)) => {
            let detail = message!("problem-body-length", most = MAX_BODY_BYTES);
            Err(Problem::new(ProblemType::PayloadTooLarge, detail))
        }
        Ok(Err(error)) => Err(Problem::unreadable_body(&error)),
        Err(_) => {
            let detail = message!("problem-late-body", seconds = BODY_TIMEOUT.as_secs());
            Err(Problem::new(ProblemType::RequestTimeout, detail))
        }
    }
}

/// Keeps the body, and the phase of the connection, until the response has been sent; the outermost
/// middleware.
pub(crate) async fn close_unread<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<KeptPayload>, Error> {
    let phase = request.conn_data::<Rc<ConnectionPhase>>();
    let in_progress = phase.map(ConnectionPhase::begin_request);
    let asks_for_upgrade = asks_for_upgrade(request.head());
    let left = asks_for_upgrade.then(|| body_length(request.headers())).flatten();

    let payload = match request.take_payload() {
        Payload::None => None,
        payload => Some(SharedPayload { payload: Rc::new(RefCell::new(payload)), left }),
    };

    if let Some(payload) = payload.clone() {
        request.set_payload(Payload::Stream { payload: Box::pin(payload) });
    }
    let keep = |body: BoxBody| KeptPayload { body, _payload: payload, _in_progress: in_progress };

    let state = request.app_data::<State>().cloned();
    let close_if_due = |head: &mut ResponseHead| {
        if asks_for_upgrade || state.is_some_and(|state| state.readiness.is_shutting_down()) {
            head.set_connection_type(ConnectionType::Close);
        }
    };

    match next.call(request).await {
        Ok(mut response) => {
            close_if_due(response.response_mut().head_mut());
            Ok(response.map_body(|_, body| keep(body.boxed())))
        }
        Err(error) => {
            let mut response: HttpResponse = error.error_response();
            close_if_due(response.head_mut());
            let response = response.map_body(|_, body| BoxBody::new(keep(body)));
            Err(InternalError::from_response(error, response).into())
        }
    }
}

fn asks_for_upgrade(head: &RequestHead) -> bool {
    head.method == Method::CONNECT || head.upgrade() || head.headers().contains_key(UPGRADE)
}

fn body_length(headers: &HeaderMap) -> Option<usize> {
    (!headers.contains_key(TRANSFER_ENCODING)).then(|| declared_length(headers))
}

/// A payload with two owners: the request and [`KeptPayload`].
#[derive(Clone)]
struct SharedPayload {
    payload: Rc<RefCell<Payload>>,
    /// Bytes that still belong to the request, if they are counted: for actix, all that follows a
    /// request for a WebSocket or a tunnel is its body.
    left: Option<usize>,
}

impl Stream for SharedPayload {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.left == Some(0) {
            return Poll::Ready(None);
        }
        let mut next = ready!(Pin::new(&mut *this.payload.borrow_mut()).poll_next(cx));
        if let (Some(Ok(bytes)), Some(left)) = (&mut next, &mut this.left) {
            bytes.truncate(*left);
            *left -= bytes.len();
        }
        Poll::Ready(next)
    }
}

/// The body of a response, with the payload of its request.
pub struct KeptPayload {
    body: BoxBody,
    _payload: Option<SharedPayload>,
    _in_progress: Option<RequestInProgress>,
}

impl MessageBody for KeptPayload {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}
