//! Decides which visitors may run lessons and loads from the lab's pages: under `up`, everybody on
//! this machine; from elsewhere an admin, and with `--lab public` every signed-in user. A student
//! of a class runs lessons and plays, wherever the device is; loads with faults are the teacher's.
//! Everybody may read the lab while it is on. Tests: `tests/pages/lab_access.rs`,
//! `tests/pages/join.rs`.

use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::http::Version;
use actix_web::http::header::{HOST, HeaderName};
use actix_web::http::uri::Authority;

use super::auth::{ensure_admin, find_caller, unauthenticated};
use super::csrf::{check_origin, check_public_form};
use crate::web::{AppState, Problem, ProblemType, app_state};
use holdfast_base::messages::message;
use holdfast_shop::UserId;
use holdfast_shop::sessions::Caller;

/// How the names of headers that proxies add begin.
const PROXY_HEADERS: [&str; 10] = [
    "cdn-",
    "cf-",
    "client-ip",
    "cloudfront-",
    "fastly-",
    "fly-",
    "forwarded",
    "true-client-ip",
    "via",
    "x-",
];
/// Headers that a client may send itself.
const CLIENT_HEADERS: [&str; 2] = ["x-csrf-token", "x-request-id"];

/// An action of a visitor in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A lesson, or a game of the scheduler.
    Lesson,
    /// A custom load, with faults.
    Load,
}

/// The right to run lessons and loads: always, after signing in, or only as an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAccess {
    Granted,
    SignIn,
    AdminOnly,
}

pub(crate) async fn run_access(
    request: &HttpRequest,
    action: Action,
) -> Result<RunAccess, Problem> {
    let state = app_state(request)?;
    // While Postgres does not respond, the page is shown as to a visitor without a session.
    let caller = find_caller(request).await.ok().flatten();
    Ok(access(state, is_local(state, request), caller.as_deref(), action))
}

/// Returns whether only an admin runs the lab from where the visitor is.
pub fn is_admins_alone(request: &HttpRequest) -> bool {
    app_state(request).is_ok_and(|state| !state.public_lab && !is_local(state, request))
}

fn access(state: &AppState, local: bool, caller: Option<&Caller>, action: Action) -> RunAccess {
    match caller {
        // First: a student at the teacher's machine stays one.
        Some(caller) if caller.is_student => match action {
            Action::Lesson => RunAccess::Granted,
            Action::Load => RunAccess::AdminOnly,
        },
        _ if local => RunAccess::Granted,
        None => RunAccess::SignIn,
        Some(caller) if caller.admin || state.public_lab => RunAccess::Granted,
        Some(_) => RunAccess::AdminOnly,
    }
}

/// Requires that the lab is on, that the form is this site's, and that the visitor may run the lab.
/// Returns the user whose runs are counted: a signed-in one of another machine, unless an admin.
pub(crate) async fn check_run_form(
    request: &HttpRequest,
    csrf: &str,
    action: Action,
) -> Result<Option<UserId>, Problem> {
    let state = app_state(request)?;
    state.require_lab()?;
    let signed_in = check_public_form(request, csrf).await?;
    let local = is_local(state, request);
    let caller = signed_in.as_ref().map(|user| &*user.caller);

    match access(state, local, caller, action) {
        RunAccess::Granted => {
            let is_counted = |caller: &&Caller| caller.is_student || !local && !caller.admin;
            Ok(caller.filter(is_counted).map(|caller| caller.id))
        }
        RunAccess::SignIn => Err(unauthenticated(request)),
        RunAccess::AdminOnly if caller.is_some_and(|caller| caller.is_student) => {
            Err(Problem::teacher_only())
        }
        RunAccess::AdminOnly => {
            Err(Problem::new(ProblemType::Forbidden, message!("problem-lab-readers")))
        }
    }
}

/// Requires that the lab is on and that the visitor may store files in it: everybody on this
/// machine, elsewhere an admin. It runs before a large form is read, whose CSRF token is checked
/// afterwards by [`check_run_form`].
pub(crate) async fn check_file_access(request: &HttpRequest) -> Result<(), Problem> {
    let state = app_state(request)?;
    state.require_lab()?;
    let is_local = is_local(state, request);
    if is_local && !state.class {
        return check_origin(request);
    }
    let signed_in = super::auth::find_signed_in(request).await?;
    let is_student = signed_in.as_ref().is_some_and(|user| user.caller.is_student);
    if is_local && !is_student {
        return check_origin(request);
    }
    ensure_admin(signed_in.ok_or_else(|| unauthenticated(request))?).map(drop)
}

/// Returns whether the visitor sits at this machine, which only `up` can know about its listener.
fn is_local(state: &AppState, request: &HttpRequest) -> bool {
    state.local_visitors && is_direct(request)
}

/// Returns whether the request comes from this machine, names it, and shows no trace of a proxy. A
/// proxy that adds no header speaks HTTP/1.0 or names its upstream; a page of another site (DNS
/// rebinding) names that site.
fn is_direct(request: &HttpRequest) -> bool {
    let peer = request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let modern = request.version() >= Version::HTTP_11;
    let proxied = request.headers().keys().any(is_of_proxy);
    peer && modern && !proxied && host.is_some_and(is_loopback_host)
}

fn is_of_proxy(name: &HeaderName) -> bool {
    let name = name.as_str();
    !CLIENT_HEADERS.contains(&name) && PROXY_HEADERS.iter().any(|start| name.starts_with(start))
}

fn is_loopback_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let loopback = address.is_ok_and(|address| address.is_loopback());
    loopback || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn proxied_request_is_not_local() {
        let request = |peer: &str, header: Option<(&'static str, &'static str)>| {
            let request = TestRequest::default().peer_addr(peer.parse().expect("an address"));
            let request = request.insert_header(("host", "localhost:8080"));
            let request = header.into_iter().fold(request, TestRequest::insert_header);
            is_direct(&request.to_http_request())
        };
        assert!(request("127.0.0.1:5000", None));
        assert!(request("[::ffff:127.0.0.1]:5000", None));
        assert!(!request("192.0.2.1:5000", None));
        assert!(!request("127.0.0.1:5000", Some(("x-forwarded-for", "127.0.0.1"))));
        assert!(!request("127.0.0.1:5000", Some(("forwarded", "for=127.0.0.1"))));
        assert!(!request("127.0.0.1:5000", Some(("host", "shop.example.org"))));
    }

    #[test]
    fn only_loopback_hosts_name_this_machine() {
        for host in ["localhost", "LOCALHOST:80", "a.localhost", "127.8.8.8:1", "[::1]", "[::1]:1"]
        {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in [
            "",
            "localhost.example.org",
            "xlocalhost",
            "127.0.0.1.example.org",
            "localhost@example.org",
            "localhost, example.org",
            "192.0.2.1",
            "[::2]",
            "::1",
            "0.0.0.0",
        ] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}
