//! The attributes that all cookies of the shop share. Behind TLS (`--secure-cookies on`) a cookie
//! has the prefix `__Host-` and `Secure`: a browser sends it only over TLS and only to this host,
//! and accepts it from no other host of the domain. Test: `secure_cookies_are_bound_to_host`.

use actix_web::HttpRequest;
use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};

use crate::web::app_state;

/// Lifetime of a cookie, in days: that of a session.
const COOKIE_DAYS: i64 = 30;

/// A cookie of the shop, by its name without TLS.
#[derive(Debug, Clone, Copy)]
pub struct ShopCookie(&'static str);

pub const SESSION_COOKIE: ShopCookie = ShopCookie("holdfast_session");
pub const BASKET_COOKIE: ShopCookie = ShopCookie("holdfast_basket");
pub const LANGUAGE_COOKIE: ShopCookie = ShopCookie("holdfast_language");
/// Identifies a browser without a session in the lab.
pub const VISITOR_COOKIE: ShopCookie = ShopCookie("holdfast_visitor");

impl ShopCookie {
    pub fn read(self, request: &HttpRequest) -> Option<String> {
        request.cookie(&self.name(request)).map(|cookie| cookie.value().to_owned())
    }

    pub fn build(self, request: &HttpRequest, value: String) -> Cookie<'static> {
        self.with_age(request, value, Duration::days(COOKIE_DAYS))
    }

    pub fn removal(self, request: &HttpRequest) -> Cookie<'static> {
        self.with_age(request, String::new(), Duration::ZERO)
    }

    fn with_age(self, request: &HttpRequest, value: String, max_age: Duration) -> Cookie<'static> {
        Cookie::build(self.name(request), value)
            .path("/")
            .http_only(true)
            .secure(is_secure(request))
            .same_site(SameSite::Lax)
            .max_age(max_age)
            .finish()
    }

    fn name(self, request: &HttpRequest) -> String {
        let prefix = if is_secure(request) { "__Host-" } else { "" };
        format!("{prefix}{}", self.0)
    }
}

fn is_secure(request: &HttpRequest) -> bool {
    app_state(request).is_ok_and(|state| state.secure_cookies)
}
