//! The rate limits of requests:
//!
//! - by *address*, for all requests but `/healthz`, `/readyz`, `/metrics` and files; checked first,
//!   so that a flood of made-up tokens costs no session look-ups;
//! - by *client*: the user, not the session, so that a new sign-in does not bring a new limit;
//! - by address for *sign-in* and sign-up, because verifying a password is slow; IPv6 also by the
//!   network of 48 bits, of which one customer may have all 65,536 networks of 64 bits;
//! - by *name* for sign-in, against guesses from many addresses. An address from which the user
//!   signed in has its own limit for [`KNOWN_ADDRESS_TTL`], so that the owner is not locked out;
//!   existing sessions are not affected;
//! - by address for *races*, which need no sign-in; it is on while the lab is on.
//!
//! Rejects with `too-many-requests` (429) and `Retry-After` in seconds; nothing is stored, so the
//! same idempotency key may be sent again.
//! Tests: `tests/it/rate_limits.rs`, `tests/it/sign_in_limits.rs`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Once;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderName, HeaderValue};

use super::address::{TrustedProxies, rate_limit_key, sign_in_network};
use crate::rate_limit::{LimitDecision, LimitStatus, Limiter, Policy, Rate};
use crate::shop::UserId;
use crate::shop::users::is_valid_name;
use crate::web::{Problem, ProblemType};

/// Time for which an address stays known for a user, at least: the lifetime of a session. It is
/// removed at the user's next sign-in after that, or when the user has not signed in for as long.
const KNOWN_ADDRESS_TTL: Duration = Duration::from_hours(30 * 24);

/// Sign-ins from an IPv6 network of 48 bits, as a multiple of those from one address: several
/// customers may share it.
const SIGN_IN_NETWORK_FACTOR: u64 = 4;

pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
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
    /// For each address, over races.
    pub race: Option<Rate>,
}

#[derive(Debug)]
pub struct RateLimits {
    limiter: Limiter,
    pub(super) rates: Rates,
    proxies: TrustedProxies,
    /// Limits the warning about an untrusted proxy to one.
    untrusted_proxy: Once,
}

/// A limit, and the name under which a request counts against it.
pub(super) type LimitCheck = (Policy, String);

impl RateLimits {
    /// Creates the limits of a replica behind trusted `proxies`.
    pub fn new(limiter: Limiter, rates: Rates, proxies: TrustedProxies) -> Self {
        Self { limiter, rates, proxies, untrusted_proxy: Once::new() }
    }

    fn address(&self, request: &HttpRequest) -> IpAddr {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let peer = request.peer_addr().map_or(nowhere, |peer| peer.ip());
        let lines: Vec<&str> = request
            .headers()
            .get_all(FORWARDED_FOR)
            // Text that is no address ends the chain; an empty line would not.
            .map(|line| line.to_str().unwrap_or("unknown"))
            .collect();
        if !lines.is_empty() && !self.proxies.contains(peer.to_canonical()) {
            self.untrusted_proxy.call_once(|| {
                tracing::warn!(
                    "{peer} sent X-Forwarded-For, which is ignored because it is no trusted proxy. \
                     If it is one, name it in HOLDFAST_TRUSTED_PROXIES: until then, all of its \
                     clients share one rate limit"
                );
            });
        }
        self.proxies.client_address(peer, lines.into_iter())
    }

    /// Returns the name under which bounds count the request's address.
    pub fn address_name(&self, request: &HttpRequest) -> String {
        rate_limit_key(self.address(request))
    }

    /// Takes a permit of each limit; otherwise `too-many-requests`.
    pub(super) async fn take_permits(
        &self,
        checks: &[LimitCheck],
    ) -> Result<Vec<LimitStatus>, Problem> {
        let checks: Vec<(Policy, &str)> =
            checks.iter().map(|(policy, who)| (*policy, who.as_str())).collect();
        match self.limiter.admit(&checks).await {
            LimitDecision::Admitted(statuses) => Ok(statuses),
            LimitDecision::Rejected { by, wait, statuses } => {
                Err(too_many_requests(by, wait, &statuses))
            }
        }
    }

    /// Returns the check of the request's address, if there is such a limit.
    pub(super) fn address_check(&self, request: &HttpRequest) -> Option<LimitCheck> {
        limit_check("address", self.rates.address, || rate_limit_key(self.address(request)))
    }

    /// Returns the check of a user, if there is such a limit.
    pub(super) fn client_check(&self, user: UserId) -> Option<LimitCheck> {
        limit_check("client", self.rates.client, || user.0.to_string())
    }

    /// Counts a race of the request's address.
    pub async fn check_race(&self, request: &HttpRequest) -> Result<(), Problem> {
        let check = limit_check("race", self.rates.race, || rate_limit_key(self.address(request)));
        self.take_permits(check.as_slice()).await.map(drop)
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
        let network = sign_in_network(address);
        let address = rate_limit_key(address);
        let by_address = limit_check("sign-in", self.rates.sign_in, || address.clone());
        let by_network = network.and_then(|network| {
            let rate = self.rates.sign_in.map(|rate| rate.times(SIGN_IN_NETWORK_FACTOR));
            limit_check("sign-in-network", rate, || network)
        });
        let checks: Vec<LimitCheck> = by_address.into_iter().chain(by_network).collect();
        self.take_permits(&checks).await?;
        // An invalid name has no account, and so no password to guess.
        let name = name.filter(|name| is_valid_name(name));
        let (Some(name), Some(_)) = (name, self.rates.name) else { return Ok(()) };
        let who = if self.limiter.is_remembered(name, &address).await {
            format!("{name}@{address}")
        } else {
            name.to_owned()
        };
        let by_name = limit_check("sign-in-name", self.rates.name, || who);
        self.take_permits(by_name.as_slice()).await.map(drop)
    }

    /// Records a successful sign-in: the address has its own name limit from now on.
    pub async fn trust_address(&self, request: &HttpRequest, name: &str) {
        if self.rates.name.is_some() {
            let address = rate_limit_key(self.address(request));
            self.limiter.remember(name, &address, KNOWN_ADDRESS_TTL).await;
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

fn too_many_requests(by: Policy, wait: Duration, statuses: &[LimitStatus]) -> Problem {
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
    rate_limit_headers(statuses)
        .into_iter()
        .fold(problem, |problem, (name, value)| problem.header(name, value))
}

/// Formats the headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers 08
/// to 11): `q` is the burst, `w` the seconds to refill it, `r` the permits left, `t` the seconds
/// until all are back.
pub(super) fn rate_limit_headers(statuses: &[LimitStatus]) -> Vec<(HeaderName, HeaderValue)> {
    let (mut policies, mut limits) = (String::new(), String::new());
    for LimitStatus { policy: Policy { name, rate }, left, full_s } in statuses {
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
    fn rate_limit_headers_list_all_policies() {
        let policy = |name, text: &str| Policy {
            name,
            rate: text.parse().unwrap_or_else(|_| unreachable!()),
        };
        let statuses = [
            LimitStatus { policy: policy("address", "500/s:2000"), left: 1_999, full_s: 1 },
            LimitStatus { policy: policy("client", "50/s:200"), left: 0, full_s: 4 },
        ];
        let actual: Vec<(String, String)> = rate_limit_headers(&statuses)
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
