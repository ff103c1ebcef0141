//! The attributes that all cookies of the shop share.
//!
//! Behind TLS (`--secure-cookies on`) a cookie has the prefix `__Host-` and `Secure`: a browser
//! sends it only over TLS and only to this host, and accepts it from no other host of the domain.
//! A cookie without the prefix is then ignored. Test: `secure_cookies_are_bound_to_host`.

use actix_web::HttpRequest;
use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};

use crate::web::app_state;

/// Lifetime of a cookie, in days: that of a session.
const COOKIE_DAYS: i64 = 30;

/// A cookie of the shop, by its names without and with TLS.
#[derive(Debug, Clone, Copy)]
pub struct ShopCookie {
    plain: &'static str,
    secure: &'static str,
}

/// The session's token.
pub const SESSION_COOKIE: ShopCookie =
    ShopCookie { plain: "holdfast_session", secure: "__Host-holdfast_session" };
/// The basket.
pub const BASKET_COOKIE: ShopCookie =
    ShopCookie { plain: "holdfast_basket", secure: "__Host-holdfast_basket" };
/// The chosen language of the pages.
pub const LANGUAGE_COOKIE: ShopCookie =
    ShopCookie { plain: "holdfast_language", secure: "__Host-holdfast_language" };
/// The lessons that the visitor has run, with the guesses.
pub const LESSONS_COOKIE: ShopCookie =
    ShopCookie { plain: "holdfast_lessons", secure: "__Host-holdfast_lessons" };

impl ShopCookie {
    /// Returns the value that the request has.
    pub fn read(self, request: &HttpRequest) -> Option<String> {
        let name = if is_secure(request) { self.secure } else { self.plain };
        request.cookie(name).map(|cookie| cookie.value().to_owned())
    }

    /// Builds the cookie for a response to the request.
    pub fn build(self, request: &HttpRequest, value: String) -> Cookie<'static> {
        self.with_age(request, value, Duration::days(COOKIE_DAYS))
    }

    /// Builds the cookie that removes this one.
    pub fn removal(self, request: &HttpRequest) -> Cookie<'static> {
        self.with_age(request, String::new(), Duration::ZERO)
    }

    fn with_age(self, request: &HttpRequest, value: String, max_age: Duration) -> Cookie<'static> {
        let secure = is_secure(request);
        Cookie::build(if secure { self.secure } else { self.plain }, value)
            .path("/")
            .http_only(true)
            .secure(secure)
            .same_site(SameSite::Lax)
            .max_age(max_age)
            .finish()
    }
}

fn is_secure(request: &HttpRequest) -> bool {
    app_state(request).is_ok_and(|state| state.secure_cookies)
}
