//! Middleware that refuses requests before any other work: for a host that is not this shop's, as
//! `wrong-host` (421), and above a rate limit.
//!
//! A page of another site can make a browser send requests here under the site's own name (DNS
//! rebinding), and then reads the responses. The browser names the site in `Host`.
//! The limit of the address is checked first, so that a flood of made-up tokens costs no session
//! look-ups. Tests: `tests/it/hosts.rs`, `tests/it/rate_limits.rs`.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HOST;
use actix_web::http::uri::Authority;
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest};

use super::auth::{Credential, find_caller};
use super::rate_limits::{RATE_LIMIT, rate_limit_headers};
use crate::rate_limit::LimitStatus;
use crate::web::routes::is_under;
use crate::web::{Problem, ProblemType, State, app_state};
use holdfast_base::messages::message;

/// Paths that probes request by the replica's address, and what the page needs that explains the
/// refusal: files that everybody has.
const UNCHECKED_PATHS: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/static"];
/// Paths without rate limits.
const UNLIMITED_PATHS: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/static", "/api/docs"];

pub(crate) async fn check_host<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    match wrong_host(&request) {
        None => Ok(next.call(request).await?.map_into_left_body()),
        Some(host) => {
            let problem = Problem::new(ProblemType::WrongHost, message!("problem-host", host));
            Ok(request.error_response(problem).map_into_right_body())
        }
    }
}

fn wrong_host(request: &ServiceRequest) -> Option<String> {
    let hosts = &request.app_data::<State>()?.public_hosts;
    if hosts.is_empty() || is_under(request.path(), &UNCHECKED_PATHS) {
        return None;
    }

    // A target such as `http://host/path` names one too.
    let target = request.uri().authority().map(Authority::as_str);
    let headers = request.headers().get_all(HOST);
    let headers: Vec<&str> = headers.map(|host| host.to_str().unwrap_or_default()).collect();

    if headers.is_empty() {
        return Some(String::new());
    }

    let mut named = headers.into_iter().chain(target);
    named.find(|host| !hosts.admits(host)).map(str::to_owned)
}

pub(crate) async fn enforce_rate_limits<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    // The clone is dropped before `next` is called: the router needs the only reference.
    let request_copy = request.request().clone();
    let checked = check_request(&request_copy).await;
    drop(request_copy);

    match checked {
        Ok(statuses) => {
            let mut response = next.call(request).await?.map_into_left_body();
            // A rejected sign-in has them already.
            if !response.headers().contains_key(RATE_LIMIT) {
                for (name, value) in rate_limit_headers(&statuses) {
                    response.headers_mut().insert(name, value);
                }
            }
            Ok(response)
        }
        Err(problem) => Ok(request.error_response(problem).map_into_right_body()),
    }
}

async fn check_request(request: &HttpRequest) -> Result<Vec<LimitStatus>, Problem> {
    if is_under(request.path(), &UNLIMITED_PATHS) {
        return Ok(Vec::new());
    }

    let state = app_state(request)?;
    let limits = &state.rate_limits;
    let mut checks = Vec::new();
    if limits.rates.address.is_some() {
        checks.push(("address", limits.rates.address, limits.address_name(request)));
    }

    let credential = limits.rates.client.and_then(|_| Credential::of(request));
    let Some(credential) = credential else { return limits.take_permits(checks).await };

    let mut statuses = Vec::new();
    if state.sessions.cached(&credential.token).await.is_none() {
        // The session look-up queries Postgres: only a request within its address limit may cause
        // it.
        statuses = limits.take_permits(std::mem::take(&mut checks)).await?;
    }

    // An error is ignored: a handler that needs the caller reports it.
    if let Ok(Some(caller)) = find_caller(request).await {
        checks.push(("client", limits.rates.client, caller.id.0.to_string()));
    }

    statuses.extend(limits.take_permits(checks).await?);
    Ok(statuses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_static_files_are_not_limited() {
        for path in ["/healthz", "/metrics", "/static/shop.css", "/api/docs/", "/api/docs"] {
            assert!(is_under(path, &UNLIMITED_PATHS), "{path}");
        }
        for path in ["/", "/metricsx", "/api/orders", "/healthz2", "/orders/static/x"] {
            assert!(!is_under(path, &UNLIMITED_PATHS), "{path}");
        }
    }
}
