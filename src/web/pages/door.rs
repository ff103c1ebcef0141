//! Access control of pages, and CSRF protection of forms.
//!
//! A form of a signed-in user carries the session's CSRF token. A form without a session (sign-in,
//! sign-up, a basket before signing in) has no token; it is rejected if the browser's headers
//! (`Sec-Fetch-Site`, `Origin`) say that it comes from another site.

use actix_web::HttpRequest;
use actix_web::error::UrlencodedError;
use actix_web::http::StatusCode;
use actix_web::http::header::{HOST, HeaderName, ORIGIN};

use crate::web::auth::{SignedIn, csrf_matches, look, nobody, only_admin};
use crate::web::body;
use crate::web::problems::{Kind, Problem};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Requires a signed-in user; otherwise `unauthenticated`, shown as the sign-in page.
pub async fn signed_in(request: &HttpRequest) -> Result<SignedIn, Problem> {
    look(request).await?.ok_or_else(nobody)
}

/// Requires an admin; otherwise `unauthenticated` or `forbidden`.
pub async fn admin(request: &HttpRequest) -> Result<SignedIn, Problem> {
    only_admin(signed_in(request).await?)
}

/// Requires a signed-in user and the CSRF token; otherwise `unauthenticated` or `forbidden`.
pub async fn posted(request: &HttpRequest, csrf: &str) -> Result<SignedIn, Problem> {
    let who = signed_in(request).await?;
    if csrf_matches(&who.caller, Some(csrf)) { Ok(who) } else { Err(not_our_form()) }
}

/// Requires an admin and the CSRF token; otherwise `unauthenticated` or `forbidden`.
pub async fn posted_by_admin(request: &HttpRequest, csrf: &str) -> Result<SignedIn, Problem> {
    only_admin(posted(request, csrf).await?)
}

/// Requires the CSRF token, or without a session a form of this site; otherwise `forbidden`.
pub async fn posted_by_anyone(
    request: &HttpRequest,
    csrf: &str,
) -> Result<Option<SignedIn>, Problem> {
    match look(request).await? {
        Some(who) if csrf_matches(&who.caller, Some(csrf)) => Ok(Some(who)),
        Some(_) => Err(not_our_form()),
        None => from_this_site(request).map(|()| None),
    }
}

/// Rejects a form that the browser says comes from another site, as `forbidden`.
pub fn from_this_site(request: &HttpRequest) -> Result<(), Problem> {
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
    if ours && same_host { Ok(()) } else { Err(not_our_form()) }
}

/// Returns the address to go to after signing in: `next` if it is on this site, or the shop.
pub fn local_place(next: &str) -> &str {
    let plain = next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if plain && next.starts_with('/') && !next.starts_with("//") { next } else { "/" }
}

/// Returns the problem of a form that cannot be parsed.
pub fn unreadable(error: &UrlencodedError) -> Problem {
    match error {
        UrlencodedError::Overflow { .. } => {
            Problem::new(Kind::PayloadTooLarge, "no form of ours is so long")
        }
        UrlencodedError::ContentType => {
            Problem::new(Kind::InvalidRequest, "send application/x-www-form-urlencoded")
                .status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        }
        UrlencodedError::Parse(why) => body::wrong(".", &why.to_string()),
        error => Problem::new(Kind::InvalidRequest, format!("the form can't be read: {error}")),
    }
}

fn not_our_form() -> Problem {
    let detail =
        "the form does not come from a page of this session; reload the page, then send it";
    Problem::new(Kind::Forbidden, detail)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn redirect_target_is_always_local() {
        for next in ["/basket", "/orders/1?after=2"] {
            assert_eq!(local_place(next), next);
        }
        for next in ["", "basket", "//evil.example", "https://evil.example", "/\\evil", "/a\r\nb"] {
            assert_eq!(local_place(next), "/", "{next:?}");
        }
    }

    #[test]
    fn cross_site_form_is_rejected() {
        let check = |headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::default().insert_header(("host", "shop.example:8080"));
            let request = headers.iter().fold(request, |request, h| request.insert_header(*h));
            from_this_site(&request.to_http_request()).is_ok()
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
