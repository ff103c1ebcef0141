//! CSRF protection of forms.
//!
//! A form of a signed-in user carries the session's CSRF token. A form without a session is
//! rejected if the browser's headers say that it comes from another site: `Sec-Fetch-Site`, which a
//! page cannot set, and otherwise `Origin`, which is compared with `Host`. A proxy may rewrite
//! `Host`, and a browser may hide the origin, so `Sec-Fetch-Site: same-origin` is enough; browsers
//! send it only with TLS and to loopback.

use actix_web::HttpRequest;
use actix_web::http::header::{HOST, HeaderName, HeaderValue, ORIGIN, REFERER};

use super::auth::{SignedInUser, csrf_matches, ensure_admin, find_signed_in, unauthenticated};
use crate::web::{Problem, ProblemType};
use holdfast_base::messages::message;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Requires a signed-in user and the CSRF token; otherwise `unauthenticated` or `forbidden`.
pub(crate) async fn check_form(request: &HttpRequest, csrf: &str) -> Result<SignedInUser, Problem> {
    let signed_in = find_signed_in(request).await?;
    let signed_in = signed_in.ok_or_else(|| unauthenticated(request))?;
    if csrf_matches(&signed_in.caller, Some(csrf)) { Ok(signed_in) } else { Err(foreign_form()) }
}

pub(crate) async fn check_admin_form(
    request: &HttpRequest,
    csrf: &str,
) -> Result<SignedInUser, Problem> {
    ensure_admin(check_form(request, csrf).await?)
}

/// Requires the CSRF token, or without a session a form of this site; otherwise `forbidden`.
pub(crate) async fn check_public_form(
    request: &HttpRequest,
    csrf: &str,
) -> Result<Option<SignedInUser>, Problem> {
    match find_signed_in(request).await? {
        Some(signed_in) if csrf_matches(&signed_in.caller, Some(csrf)) => Ok(Some(signed_in)),
        Some(_) => Err(foreign_form()),
        None => check_origin(request).map(|()| None),
    }
}

/// Rejects a form that the browser says comes from another site, as `forbidden`.
pub fn check_origin(request: &HttpRequest) -> Result<(), Problem> {
    let site = request.headers().get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let ours = match site {
        Some(b"same-origin") => true,
        // By the user, not by a page; or by a browser that does not say.
        Some(b"none") | None => origin_is_host(request),
        Some(_) => false,
    };
    if ours { Ok(()) } else { Err(foreign_form()) }
}

fn origin_is_host(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    origin.is_some_and(|(_, origin_host)| Some(origin_host) == host)
}

/// Returns the address to go to after signing in: `next` if it is on this site, or the shop.
pub fn local_path(next: &str) -> &str {
    let plain = next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if plain && next.starts_with('/') && !next.starts_with("//") { next } else { "/shop" }
}

/// Returns the page of this site that the request comes from, if the browser says so.
pub fn referring_path(request: &HttpRequest) -> Option<String> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let (_, address) = header(REFERER)?.split_once("://")?;
    let path = address.strip_prefix(header(HOST)?)?;
    (local_path(path) == path).then(|| path.to_owned())
}

fn foreign_form() -> Problem {
    Problem::new(ProblemType::Forbidden, message!("problem-foreign-form"))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn redirect_target_is_always_local() {
        for next in ["/basket", "/orders/1?after=2"] {
            assert_eq!(local_path(next), next);
        }
        for next in ["", "basket", "//evil.example", "https://evil.example", "/\\evil", "/a\r\nb"] {
            assert_eq!(local_path(next), "/shop", "{next:?}");
        }
    }

    /// Every combination of what a browser says about a form's origin.
    #[test]
    fn only_forms_of_this_site_are_accepted() {
        const HOST: &str = "shop.example:8080";
        let origins =
            [None, Some("http://shop.example:8080"), Some("null"), Some("http://a.example")];
        for (site, accepted) in [
            // No browser, or an old one, or plain HTTP: the origin decides.
            (None, [true, true, false, false]),
            // The browser decides; a proxy may have rewritten `Host`.
            (Some("same-origin"), [true, true, true, true]),
            (Some("none"), [true, true, false, false]),
            (Some("same-site"), [false; 4]),
            (Some("cross-site"), [false; 4]),
            (Some("same-origin, cross-site"), [false; 4]),
            (Some(""), [false; 4]),
        ] {
            for (origin, accepted) in origins.into_iter().zip(accepted) {
                let site = site.map(|site| ("sec-fetch-site", site));
                let named = origin.map(|origin| ("origin", origin));
                let request = TestRequest::default().insert_header(("host", HOST));
                let request =
                    site.into_iter().chain(named).fold(request, TestRequest::insert_header);
                let actual = check_origin(&request.to_http_request()).is_ok();
                assert_eq!(actual, accepted, "{site:?} {origin:?}");
            }
        }
    }
}
