//! Decides which visitors may run lessons and loads from the lab's pages.
//!
//! Everybody may read the lab while it is on. On this machine everybody may run it; from elsewhere
//! an admin, and with `--lab public` every signed-in user. A form without a session must come from
//! a page of this site ([`csrf::check_public_form`]). Tests: `tests/pages/lab_access.rs`.

use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::header::{FORWARDED, HOST, HeaderName};

use super::auth::{ensure_admin, find_caller, unauthenticated};
use super::csrf::check_public_form;
use super::public_hosts::PublicHosts;
use crate::shop::UserId;
use crate::shop::sessions::Caller;
use crate::web::{AppState, Problem, ProblemType, app_state};

static LOOPBACK_HOSTS: LazyLock<PublicHosts> = LazyLock::new(|| {
    let names = ["localhost", "*.localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
    PublicHosts::parse(&names).unwrap_or_default()
});
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a visitor may run lessons and loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAccess {
    /// The visitor may run them.
    Granted,
    /// Only after signing in.
    SignIn,
    /// Only an admin may.
    AdminOnly,
}

/// Returns whether the visitor of a page may run lessons and loads.
pub async fn run_access(request: &HttpRequest) -> Result<RunAccess, Problem> {
    let state = app_state(request)?;
    // While Postgres does not respond, the page is shown as to a visitor without a session.
    let caller = find_caller(request).await.ok().flatten();
    Ok(access(state, is_local(request), caller.as_deref()))
}

fn access(state: &AppState, local: bool, caller: Option<&Caller>) -> RunAccess {
    match caller {
        _ if local => RunAccess::Granted,
        None => RunAccess::SignIn,
        Some(caller) if caller.admin || state.public_lab => RunAccess::Granted,
        Some(_) => RunAccess::AdminOnly,
    }
}

/// Requires that the lab is on, that the form is this site's, and that the visitor may run the lab.
/// Returns the user whose runs are counted: a signed-in one of another machine, unless an admin.
pub async fn check_run_form(request: &HttpRequest, csrf: &str) -> Result<Option<UserId>, Problem> {
    let state = app_state(request)?;
    state.require_lab()?;
    let signed_in = check_public_form(request, csrf).await?;
    let local = is_local(request);
    let caller = signed_in.as_ref().map(|user| &*user.caller);
    match access(state, local, caller) {
        RunAccess::Granted => {
            Ok(caller.filter(|caller| !local && !caller.admin).map(|caller| caller.id))
        }
        RunAccess::SignIn => Err(unauthenticated(request)),
        RunAccess::AdminOnly => {
            let detail = "visitors of this lab may read it; only the admin may start a run";
            Err(Problem::new(ProblemType::Forbidden, detail))
        }
    }
}

/// Requires that the lab is on and that the visitor may store files in it: everybody on this
/// machine, elsewhere an admin. It runs before a large form is read, whose CSRF token is checked
/// afterwards by [`check_run_form`].
pub async fn check_file_access(request: &HttpRequest) -> Result<(), Problem> {
    app_state(request)?.require_lab()?;
    if is_local(request) {
        return Ok(());
    }
    let signed_in = super::auth::find_signed_in(request).await?;
    ensure_admin(signed_in.ok_or_else(|| unauthenticated(request))?).map(drop)
}

/// Returns whether the request comes from this machine, through no proxy, and names this machine: a
/// proxy that adds no header, or a page of another site (DNS rebinding), names another host.
fn is_local(request: &HttpRequest) -> bool {
    let peer = request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    let headers = request.headers();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    peer && host.is_some_and(|host| LOOPBACK_HOSTS.admits(host))
        && !headers.contains_key(FORWARDED_FOR)
        && !headers.contains_key(FORWARDED)
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
            is_local(&request.to_http_request())
        };
        assert!(request("127.0.0.1:5000", None));
        assert!(request("[::ffff:127.0.0.1]:5000", None));
        assert!(!request("192.0.2.1:5000", None));
        assert!(!request("127.0.0.1:5000", Some(("x-forwarded-for", "127.0.0.1"))));
        assert!(!request("127.0.0.1:5000", Some(("forwarded", "for=127.0.0.1"))));
        assert!(!request("127.0.0.1:5000", Some(("host", "shop.example.org"))));
    }
}
