//! Middleware that checks a request's rate limits before any other work; see
//! [`rate_limits`](super::rate_limits). Limited responses carry `RateLimit-Policy` and `RateLimit`.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest};

use super::auth::{Credential, find_caller};
use super::rate_limits::{RATE_LIMIT, rate_limit_headers};
use crate::rate_limit::LimitStatus;
use crate::web::routes::is_under;
use crate::web::{Problem, app_state};

/// Paths without rate limits.
const UNLIMITED_PATHS: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/static", "/api/docs"];

pub async fn enforce_rate_limits<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let result = if is_unlimited(request.path()) {
        Ok(Vec::new())
    } else {
        // The clone is dropped before `next` is called: the router needs the only reference.
        let request_copy = request.request().clone();
        check_request(&request_copy).await
    };
    match result {
        Ok(statuses) => {
            let mut response = next.call(request).await?.map_into_left_body();
            let headers = response.headers_mut();
            // A rejected sign-in has them already.
            if !headers.contains_key(RATE_LIMIT) {
                for (name, value) in rate_limit_headers(&statuses) {
                    headers.insert(name, value);
                }
            }
            Ok(response)
        }
        Err(problem) => Ok(request.error_response(problem).map_into_right_body()),
    }
}

fn is_unlimited(path: &str) -> bool {
    is_under(path, &UNLIMITED_PATHS)
}

/// Counts a request against the limits of its address and of its user.
async fn check_request(request: &HttpRequest) -> Result<Vec<LimitStatus>, Problem> {
    let state = app_state(request)?;
    let limits = &state.rate_limits;
    let mut checks = Vec::from_iter(limits.address_check(request));
    let credential = limits.rates.client.and_then(|_| Credential::of(request));
    let Some(credential) = credential else { return limits.take_permits(&checks).await };
    let mut statuses = Vec::new();
    if state.sessions.cached(&credential.token).await.is_none() {
        // The session look-up queries Postgres: only a request within its address limit may cause
        // it.
        statuses = limits.take_permits(&std::mem::take(&mut checks)).await?;
    }
    // An error is ignored: a handler that needs the caller reports it.
    if let Ok(Some(caller)) = find_caller(request).await {
        checks.extend(limits.client_check(caller.id));
    }
    statuses.extend(limits.take_permits(&checks).await?);
    Ok(statuses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_static_files_are_not_limited() {
        for path in ["/healthz", "/metrics", "/static/shop.css", "/api/docs/", "/api/docs"] {
            assert!(is_unlimited(path), "{path}");
        }
        for path in ["/", "/metricsx", "/api/orders", "/healthz2", "/orders/static/x"] {
            assert!(!is_unlimited(path), "{path}");
        }
    }
}
