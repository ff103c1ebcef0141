//! Middleware that refuses requests for a host that is not this shop's, as `wrong-host` (421).
//!
//! A page of another site can make a browser send requests here under the site's own name (DNS
//! rebinding), and then reads the responses. The browser names the site in `Host`.
//! Tests: `tests/it/hosts.rs`.

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HOST;
use actix_web::http::uri::Authority;
use actix_web::middleware::Next;

use crate::web::{Problem, ProblemType, State};

/// Paths that probes request by the replica's address.
const UNCHECKED_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

pub async fn check_host<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    match wrong_host(&request) {
        None => Ok(next.call(request).await?.map_into_left_body()),
        Some(host) => {
            let detail = format!("“{host}” is not a name of this shop");
            let problem = Problem::new(ProblemType::WrongHost, detail);
            Ok(request.error_response(problem).map_into_right_body())
        }
    }
}

/// Returns the host that the request names, if it is not the shop's.
fn wrong_host(request: &ServiceRequest) -> Option<String> {
    let hosts = &request.app_data::<State>()?.public_hosts;
    if hosts.is_empty() || UNCHECKED_PATHS.contains(&request.path()) {
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
