//! The rate limits of requests. A limit is the user's, not the session's, so that a new sign-in
//! does not bring a new one.
//!
//! Signing in is limited by address, because verifying a password is slow (IPv6 also by the network
//! of 48 bits, of which one customer may have all 65,536 networks of 64 bits), and by name, against
//! guesses from many addresses. An address from which the user signed in has its own limit for
//! [`KNOWN_ADDRESS_TTL`], so that the owner is not locked out.
//! Tests: `tests/it/rate_limits.rs`, `tests/it/sign_in_limits.rs`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Once;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderName, HeaderValue};

use super::address::{TrustedProxies, rate_limit_key, sign_in_network};
use crate::rate_limit::{LimitStatus, Limiter, Policy, Rate};
use crate::web::{Problem, ProblemType};
use holdfast_base::messages::message;
use holdfast_shop::{UserId, names};

/// Time for which an address stays known for a user, at least: the lifetime of a session. It is
/// removed at the user's next sign-in after that, or when the user has not signed in for as long.
const KNOWN_ADDRESS_TTL: Duration = Duration::from_hours(30 * 24);

/// Sign-ins from an IPv6 network of 48 bits, as a multiple of those from one address: several
/// customers may share it.
const SIGN_IN_NETWORK_FACTOR: u64 = 4;

pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    pub client: Option<Rate>,
    pub address: Option<Rate>,
    pub sign_in: Option<Rate>,
    pub name: Option<Rate>,
    pub join: Option<Rate>,
    pub race: Option<Rate>,
    pub lab_file: Option<Rate>,
    pub lab_page: Option<Rate>,
}

#[derive(Debug)]
pub struct RateLimits {
    limiter: Limiter,
    pub(super) rates: Rates,
    proxies: TrustedProxies,
    /// Limits the warning about an untrusted proxy to one.
    untrusted_proxy: Once,
}

impl RateLimits {
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

    /// Takes a permit of each limit that has a rate; otherwise `too-many-requests`.
    pub(super) async fn take_permits(
        &self,
        limits: Vec<(&'static str, Option<Rate>, String)>,
    ) -> Result<Vec<LimitStatus>, Problem> {
        let limits: Vec<_> = limits
            .into_iter()
            .filter_map(|(name, rate, who)| Some((Policy { name, rate: rate? }, who)))
            .collect();
        let statuses = self.limiter.admit(&limits).await;
        match statuses.iter().find(|status| status.wait_us > 0) {
            Some(by) => Err(too_many_requests(by, &statuses)),
            None => Ok(statuses),
        }
    }

    /// Counts a race: of a student by the user, as a class may share an address; else by address.
    pub async fn check_race(
        &self,
        request: &HttpRequest,
        student: Option<UserId>,
    ) -> Result<(), Problem> {
        let who = student.map_or_else(|| self.address_name(request), |id| id.0.to_string());
        self.take_permits(vec![("race", self.rates.race, who)]).await.map(drop)
    }

    pub async fn check_join(&self, request: &HttpRequest) -> Result<(), Problem> {
        let limit = ("join", self.rates.join, self.address_name(request));
        self.take_permits(vec![limit]).await.map(drop)
    }

    /// Counts a file that a visitor sends to the lab.
    pub async fn check_lab_file(&self, request: &HttpRequest) -> Result<(), Problem> {
        let limit = ("lab-file", self.rates.lab_file, self.address_name(request));
        self.take_permits(vec![limit]).await.map(drop)
    }

    /// Counts a page of the lab whose length a visitor's file or a whole run decides.
    pub async fn check_lab_page(&self, request: &HttpRequest) -> Result<(), Problem> {
        let limit = ("lab-page", self.rates.lab_page, self.address_name(request));
        self.take_permits(vec![limit]).await.map(drop)
    }

    /// Counts a sign-in as `name`, in any of its forms, or a sign-up.
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
        let mut limits = vec![("sign-in", self.rates.sign_in, address.clone())];
        if let Some(network) = network {
            let rate = self.rates.sign_in.map(|rate| rate.times(SIGN_IN_NETWORK_FACTOR));
            limits.push(("sign-in-network", rate, network));
        }
        self.take_permits(limits).await?;

        // An invalid name has no account, and so no password to guess.
        let name = name.and_then(names::user_name);
        let (Some(name), Some(_)) = (name, self.rates.name) else { return Ok(()) };
        let who = match self.limiter.is_remembered(&name, &address).await {
            true => format!("{name}@{address}"),
            false => name,
        };
        self.take_permits(vec![("sign-in-name", self.rates.name, who)]).await.map(drop)
    }

    /// Records a successful sign-in: the address has its own name limit from now on.
    pub async fn trust_address(&self, request: &HttpRequest, name: &str) {
        if let (Some(name), Some(_)) = (names::user_name(name), self.rates.name) {
            let address = rate_limit_key(self.address(request));
            self.limiter.remember(&name, &address, KNOWN_ADDRESS_TTL).await;
        }
    }
}

fn too_many_requests(by: &LimitStatus, statuses: &[LimitStatus]) -> Problem {
    let Policy { name, rate } = by.policy;
    let (burst, permits, period) = (rate.burst, rate.permits, rate.period());
    let detail = message!("problem-rate-limit", name, burst, permits, period);
    let problem = Problem::new(ProblemType::TooManyRequests, detail)
        .retry_after(by.wait_us.div_ceil(1_000_000))
        .with("limit", name)
        .with("retry_after_ms", by.wait_us.div_ceil(1_000));
    rate_limit_headers(statuses)
        .into_iter()
        .fold(problem, |problem, (name, value)| problem.header(name, value))
}

/// Formats the headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers 08
/// to 11): `q` is the burst, `w` the seconds to refill it, `r` the permits left, `t` the seconds
/// until all are back.
pub(super) fn rate_limit_headers(statuses: &[LimitStatus]) -> Vec<(HeaderName, HeaderValue)> {
    let mut policies = Vec::new();
    let mut limits = Vec::new();
    for LimitStatus { policy: Policy { name, rate }, left, full_s, .. } in statuses {
        policies.push(format!("\"{name}\";q={};w={}", rate.burst, rate.window_s()));
        limits.push(format!("\"{name}\";r={left};t={full_s}"));
    }

    let lines = [(RATE_LIMIT_POLICY, policies), (RATE_LIMIT, limits)];
    let value = |parts: Vec<String>| HeaderValue::from_str(&parts.join(", ")).ok();
    lines
        .into_iter()
        .filter(|(_, parts)| !parts.is_empty())
        .filter_map(|(name, parts)| Some((name, value(parts)?)))
        .collect()
}
