//! Middleware that checks a request's rate limits before any other work:
//!
//! - by *address*, for all requests but `/healthz`, `/readyz`, `/metrics` and files; checked first,
//!   so that a flood of made-up tokens costs no session look-ups;
//! - by *client*: the user, not the session, so that a new sign-in does not bring a new limit;
//! - by address for *sign-in* and sign-up, because verifying a password is slow;
//! - by *name* for sign-in, against guesses from many addresses. An address from which the user
//!   signed in has its own limit for [`KNOWN_ADDRESS_TTL`], so that the owner is not locked out;
//!   existing sessions are not affected.
//!
//! Rejects with `too-many-requests` (429) and `Retry-After` in seconds; nothing is stored, so the
//! same idempotency key may be sent again. Limited responses carry `RateLimit-Policy` and
//! `RateLimit` (draft-ietf-httpapi-ratelimit-headers 08 to 11): `q` is the burst, `w` the seconds
//! to refill it, `r` the permits left, `t` the seconds until all are back.
//! Tests: `tests/it/rate_limits.rs`, `tests/it/sign_in_limits.rs`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest};

use super::address::{TrustedProxies, rate_limit_key};
use super::auth::{Credential, app_state, find_caller};
use crate::rate_limit::{LimitDecision, LimitStatus, Limiter, Policy, Rate};
use crate::shop::users::is_valid_name;
use crate::web::problems::{Problem, ProblemType};

/// Paths without rate limits.
const UNLIMITED_PATHS: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/static", "/api/docs"];
/// Time for which an address stays known for a user: the lifetime of a session.
const KNOWN_ADDRESS_TTL: Duration = Duration::from_hours(30 * 24);

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Rate limits; `None` disables a limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// For each user, over all requests.
    pub client: Option<Rate>,
    /// For each address, over all requests.
    pub address: Option<Rate>,
    /// For each address, over sign-ins and sign-ups.
    pub sign_in: Option<Rate>,
    /// For each user name, over sign-ins.
    pub name: Option<Rate>,
}

#[derive(Debug)]
pub struct RateLimits {
    limiter: Limiter,
    rates: Rates,
    proxies: TrustedProxies,
}

type LimitCheck = (Policy, String);

impl RateLimits {
    /// Creates the limits of a replica behind trusted `proxies`.
    pub fn new(limiter: Limiter, rates: Rates, proxies: TrustedProxies) -> Self {
        Self { limiter, rates, proxies }
    }

    fn address(&self, request: &HttpRequest) -> String {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let peer = request.peer_addr().map_or(nowhere, |peer| peer.ip());
        let lines: Vec<&str> = request
            .headers()
            .get_all(FORWARDED_FOR)
            .map(|line| line.to_str().unwrap_or_default())
            .collect();
        rate_limit_key(self.proxies.client_address(peer, lines.into_iter()))
    }

    async fn take_permits(&self, checks: &[LimitCheck]) -> Result<Vec<LimitStatus>, Problem> {
        let checks: Vec<(Policy, &str)> =
            checks.iter().map(|(policy, who)| (*policy, who.as_str())).collect();
        match self.limiter.admit(&checks).await {
            LimitDecision::Admitted(standings) => Ok(standings),
            LimitDecision::Rejected { by, wait, statuses } => {
                Err(too_many_requests(by, wait, &statuses))
            }
        }
    }

    /// Counts a request against the limits of its address and of its user.
    async fn check_request(&self, request: &HttpRequest) -> Result<Vec<LimitStatus>, Problem> {
        let mut checks = Vec::new();
        checks.extend(limit_check("address", self.rates.address, || self.address(request)));
        let credential = self.rates.client.and_then(|_| Credential::of(request));
        let Some(credential) = credential else { return self.take_permits(&checks).await };
        let sessions = &app_state(request)?.sessions;
        let mut standings = Vec::new();
        if sessions.cached(credential.token()).await.is_none() {
            // The session look-up queries Postgres: only a request within its address limit may
            // cause it.
            standings = self.take_permits(&std::mem::take(&mut checks)).await?;
        }
        // An error is ignored: a handler that needs the caller reports it.
        if let Ok(Some(caller)) = find_caller(request).await {
            checks.extend(limit_check("client", self.rates.client, || caller.id.0.to_string()));
        }
        standings.extend(self.take_permits(&checks).await?);
        Ok(standings)
    }

    /// Counts a sign-in as `name`, or a sign-up.
    ///
    /// The address limit is checked first, because looking up whether the address is known costs a
    /// call to Redis. A sign-in that the name limit rejects has therefore been counted for its
    /// address. After `too-many-requests` the caller must not verify the password.
    pub async fn check_sign_in(
        &self,
        request: &HttpRequest,
        name: Option<&str>,
    ) -> Result<(), Problem> {
        let address = self.address(request);
        let by_address = limit_check("sign-in", self.rates.sign_in, || address.clone());
        self.take_permits(by_address.as_slice()).await?;
        // An invalid name has no account, and so no password to guess.
        let name = name.filter(|name| is_valid_name(name));
        let (Some(name), Some(_)) = (name, self.rates.name) else { return Ok(()) };
        let name_at_address = join_name_address(name, &address);
        let who = if self.limiter.is_remembered(&name_at_address).await {
            name_at_address
        } else {
            name.to_owned()
        };
        let by_name = limit_check("sign-in-name", self.rates.name, || who);
        self.take_permits(by_name.as_slice()).await.map(drop)
    }

    /// Records a successful sign-in: the address has its own name limit from now on.
    pub async fn trust_address(&self, request: &HttpRequest, name: &str) {
        if self.rates.name.is_some() {
            self.limiter
                .remember(&join_name_address(name, &self.address(request)), KNOWN_ADDRESS_TTL)
                .await;
        }
    }
}

fn limit_check(
    name: &'static str,
    rate: Option<Rate>,
    who: impl FnOnce() -> String,
) -> Option<LimitCheck> {
    rate.map(|rate| (Policy { name, rate }, who()))
}

fn join_name_address(name: &str, address: &str) -> String {
    format!("{name}@{address}")
}

pub async fn enforce_rate_limits<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let is_limited = !is_unlimited(request.path());
    let result = match app_state(request.request()) {
        Ok(state) if is_limited => {
            // The clone is dropped before `next` is called: the router needs the only reference.
            let (state, request_copy) = (state.clone(), request.request().clone());
            state.rate_limits.check_request(&request_copy).await
        }
        _ => Ok(Vec::new()),
    };
    match result {
        Ok(standings) => {
            let mut response = next.call(request).await?.map_into_left_body();
            add_rate_limit_headers(response.headers_mut(), &standings);
            Ok(response)
        }
        Err(problem) => Ok(request.error_response(problem).map_into_right_body()),
    }
}

fn is_unlimited(path: &str) -> bool {
    let under = |top: &&str| {
        path.strip_prefix(*top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    UNLIMITED_PATHS.iter().any(under)
}

fn too_many_requests(by: Policy, wait: Duration, standings: &[LimitStatus]) -> Problem {
    let detail = format!(
        "the limit “{}” is {} at once, and then {}",
        by.name,
        by.rate.burst(),
        by.rate.in_words()
    );
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let problem = Problem::new(ProblemType::TooManyRequests, detail)
        .retry_after(wait_ms.div_ceil(1_000))
        .with("limit", by.name)
        .with("retry_after_ms", wait_ms);
    rate_limit_headers(standings)
        .into_iter()
        .fold(problem, |problem, (name, value)| problem.header(name, value))
}

/// Adds the rate limit headers, unless the response has them already.
fn add_rate_limit_headers(to: &mut HeaderMap, standings: &[LimitStatus]) {
    if !to.contains_key(RATE_LIMIT) {
        for (name, value) in rate_limit_headers(standings) {
            to.insert(name, value);
        }
    }
}

fn rate_limit_headers(standings: &[LimitStatus]) -> Vec<(HeaderName, HeaderValue)> {
    let (mut policies, mut limits) = (String::new(), String::new());
    for LimitStatus { policy: Policy { name, rate }, left, full_s } in standings {
        let comma = if limits.is_empty() { "" } else { ", " };
        // Writing to a string can't fail.
        let _ = write!(policies, "{comma}\"{name}\";q={};w={}", rate.burst(), rate.window_s());
        let _ = write!(limits, "{comma}\"{name}\";r={left};t={full_s}");
    }
    let value = |text: String| HeaderValue::from_str(&text).ok().filter(|value| !value.is_empty());
    [(RATE_LIMIT_POLICY, value(policies)), (RATE_LIMIT, value(limits))]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
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

    #[test]
    fn rate_limit_headers_list_all_policies() {
        let policy = |name, text: &str| Policy {
            name,
            rate: text.parse().unwrap_or_else(|_| unreachable!()),
        };
        let standings = [
            LimitStatus { policy: policy("address", "500/s:2000"), left: 1_999, full_s: 1 },
            LimitStatus { policy: policy("client", "50/s:200"), left: 0, full_s: 4 },
        ];
        let actual: Vec<(String, String)> = rate_limit_headers(&standings)
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("?").to_owned()))
            .collect();
        let expected = [
            ("ratelimit-policy", "\"address\";q=2000;w=4, \"client\";q=200;w=4"),
            ("ratelimit", "\"address\";r=1999;t=1, \"client\";r=0;t=4"),
        ];
        assert_eq!(actual, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(rate_limit_headers(&[]).is_empty());
    }
}
