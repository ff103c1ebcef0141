//! Middleware for request ids, common headers, and the timeout of a request.
//!
//! The id is the client's `X-Request-Id` if that is a UUID. Responses carry the id, the replica,
//! the strategy and security headers. A request that takes longer than [`REQUEST_TIMEOUT`] is
//! answered with 503 and an unknown outcome, because a transaction that has begun runs to its end.

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage};
use tokio::time::timeout;
use uuid::Uuid;

use super::request_options::{EffectiveStrategy, RequestId};
use crate::metrics::HTTP_REQUEST_DURATION;
use crate::shop::REQUEST_TIMEOUT;
use crate::web::{Problem, ProblemType, State};

const REPLICA: HeaderName = HeaderName::from_static("holdfast-replica");
const STRATEGY: HeaderName = HeaderName::from_static("holdfast-strategy");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Content security policy: nothing from other origins, no inline scripts or styles.
const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

pub async fn request_context(
    mut request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let started = Instant::now();
    let given = request.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok());
    let id = given.and_then(|id| Uuid::parse_str(id).ok()).unwrap_or_else(Uuid::now_v7);
    request.extensions_mut().insert(RequestId(id));
    let (replica, strategy) = match request.app_data::<State>() {
        Some(state) => (header_value(&state.replica), state.shop.strategy.name),
        None => (HeaderValue::from_static("?"), "?"),
    };
    let method = method_label(request.method());
    // HEAD is served like GET; the connection omits the body.
    if request.method() == Method::HEAD {
        request.head_mut().method = Method::GET;
    }

    let result = timeout(REQUEST_TIMEOUT, next.call(request)).await;
    let mut response = match result {
        Ok(response) => response?,
        Err(_) => {
            let detail = "it took longer than the shop gives one request";
            let late = Problem::new(ProblemType::Unavailable, detail)
                .with("outcome", "unknown")
                .header(REPLICA, replica)
                .header(STRATEGY, HeaderValue::from_static(strategy))
                .header(REQUEST_ID, header_value(&id.to_string()));
            return Err(late.into());
        }
    };
    let strategy = response
        .request()
        .extensions()
        .get::<EffectiveStrategy>()
        .map_or(strategy, |served| served.0);
    let status = response.status();
    let pattern = response.request().match_pattern().unwrap_or_else(|| "(none)".to_owned());
    let headers = response.headers_mut();
    headers.insert(REPLICA, replica);
    headers.insert(STRATEGY, HeaderValue::from_static(strategy));
    headers.insert(REQUEST_ID, header_value(&id.to_string()));
    add_security_headers(headers);

    let elapsed = started.elapsed();
    tracing::debug!(%id, %method, pattern, status = status.as_u16(), ?elapsed, "request completed");
    metrics::histogram!(
        HTTP_REQUEST_DURATION,
        "method" => method, "route" => pattern, "status" => status.as_u16().to_string(),
    )
    .record(elapsed.as_secs_f64());
    Ok(response)
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

/// Returns the method as a metric label. Methods that clients invent share `other`, so the number
/// of labels is bounded.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("?"))
}
