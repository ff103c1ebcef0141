//! CSRF protection of forms.
//!
//! A form of a signed-in user carries the session's CSRF token. A form without a session (sign-in,
//! sign-up, a basket before signing in) has no token; it is rejected if the browser's headers
//! (`Sec-Fetch-Site`, `Origin`) say that it comes from another site.

use actix_web::HttpRequest;
use actix_web::http::header::{HOST, HeaderName, ORIGIN};

use super::auth::{SignedInUser, csrf_matches, ensure_admin, find_signed_in, unauthenticated};
use crate::web::{Problem, ProblemType, app_state};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Requires a signed-in user and the CSRF token; otherwise `unauthenticated` or `forbidden`.
pub async fn check_form(request: &HttpRequest, csrf: &str) -> Result<SignedInUser, Problem> {
    let signed_in = find_signed_in(request).await?;
    let signed_in = signed_in.ok_or_else(|| unauthenticated(request))?;
    if csrf_matches(&signed_in.caller, Some(csrf)) { Ok(signed_in) } else { Err(foreign_form()) }
}

/// Requires an admin and the CSRF token; otherwise `unauthenticated` or `forbidden`.
pub async fn check_admin_form(request: &HttpRequest, csrf: &str) -> Result<SignedInUser, Problem> {
    ensure_admin(check_form(request, csrf).await?)
}

/// Requires an admin, the CSRF token, and that the lab is on.
pub async fn check_lab_form(request: &HttpRequest, csrf: &str) -> Result<SignedInUser, Problem> {
    let admin = check_admin_form(request, csrf).await?;
    app_state(request)?.require_lab()?;
    Ok(admin)
}

/// Requires the CSRF token, or without a session a form of this site; otherwise `forbidden`.
pub async fn check_public_form(
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
    let text = |name: HeaderName| request.headers().get(name).map(|value| value.to_str());
    let ours = match text(SEC_FETCH_SITE) {
        None => true,
        Some(site) => matches!(site, Ok("same-origin" | "none")),
    };
    let host = text(HOST).and_then(Result::ok);
    let same_host = match text(ORIGIN) {
        None => true,
        Some(origin) => {
            let origin = origin.ok().and_then(|origin| origin.split_once("://"));
            origin.is_some_and(|(_, origin_host)| Some(origin_host) == host)
        }
    };
    if ours && same_host { Ok(()) } else { Err(foreign_form()) }
}

/// Returns the address to go to after signing in: `next` if it is on this site, or the shop.
pub fn local_path(next: &str) -> &str {
    let plain = next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if plain && next.starts_with('/') && !next.starts_with("//") { next } else { "/shop" }
}

fn foreign_form() -> Problem {
    let detail =
        "the form does not come from a page of this session; reload the page, then send it";
    Problem::new(ProblemType::Forbidden, detail)
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

    #[test]
    fn cross_site_form_is_rejected() {
        let check = |headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::default().insert_header(("host", "shop.example:8080"));
            let request = headers.iter().fold(request, |request, h| request.insert_header(*h));
            check_origin(&request.to_http_request()).is_ok()
        };
        assert!(check(&[]));
        assert!(check(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "http://shop.example:8080")
        ]));
        assert!(!check(&[("sec-fetch-site", "cross-site")]));
        assert!(!check(&[("sec-fetch-site", "same-site")]));
        assert!(!check(&[("origin", "http://evil.example")]));
        assert!(!check(&[("origin", "null")]));
    }
}
