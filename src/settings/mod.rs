//! The settings of requests: checks what the command line cannot, and applies the defaults.

mod args;

use std::net::SocketAddr;

pub use args::{LockArgs, MIN_PASSWORD_LENGTH, RateLimitArgs, ServeArgs, Switch};

use crate::rate_limit::Rate;
use crate::web::middleware::address::TrustedProxies;
use crate::web::middleware::public_hosts::PublicHosts;
use crate::web::middleware::rate_limits::Rates;
use holdfast_services::reachable;

/// Default rate limits while the lab is off: per client, address, sign-in and name. Generous enough
/// for a person with ten pages and a script, and for an office behind one address; they allow ten
/// guesses of a password per minute and name, 14,400 a day.
const DEFAULT_RATES: [&str; 4] = ["50/s:200", "500/s:2000", "60/m:30", "10/m:10"];

/// Default limit of a user's unpaid orders while the lab is off: more than a person places within
/// the payment window.
const DEFAULT_UNPAID_LIMIT: &str = "200";
/// Highest limit of orders and connections; a shop that needs more turns it off.
const MAX_NUMBER: u32 = 1_000_000;
/// Default limit of the connections of one address while the lab is off: far more than the browsers
/// of an office open, and far fewer than the files that a process may have open.
const DEFAULT_MAX_CONNECTIONS: &str = "4096";

#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}")]
pub struct InvalidSetting {
    pub flag: &'static str,
    pub why: String,
}

pub struct WebSettings {
    pub rates: Rates,
    pub proxies: TrustedProxies,
    pub max_connections: Option<u32>,
    pub public_hosts: PublicHosts,
    pub max_unpaid_orders: Option<u32>,
}

/// Validates the limits, the proxies, the hosts and the prefix; fails with the first invalid
/// option.
pub fn validate(options: &ServeArgs) -> Result<(), InvalidSetting> {
    parse_settings(options)?;
    race_hosts(options, options.listen).map(|_| ())
}

pub fn parse_settings(options: &ServeArgs) -> Result<WebSettings, InvalidSetting> {
    if options.redis_prefix.trim().is_empty() {
        let why = "it must not be blank: the prefix identifies the shop's keys".to_owned();
        return Err(InvalidSetting { flag: "--redis-prefix", why });
    }
    let RateLimitArgs {
        limit_client,
        limit_address,
        limit_sign_in,
        limit_sign_in_name,
        limit_race,
        limit_unpaid,
        trusted_proxies,
        limit_connections,
    } = &options.limits;
    let [client, address, sign_in, name] = DEFAULT_RATES;
    // The text of a limit; `None` if it is off.
    let limit = |set: &Option<String>, default: &str| {
        let default_text = if options.lab.is_on() { "off" } else { default };
        let text = set.as_deref().filter(|set| !set.is_empty()).unwrap_or(default_text);
        (text != "off").then(|| text.to_owned())
    };
    let rate = |flag, set: &Option<String>, default: &'static str| {
        let rate = limit(set, default).map(|text| text.parse::<Rate>());
        rate.transpose().map_err(|why| InvalidSetting { flag, why })
    };
    let rates = Rates {
        client: rate("--limit-client", limit_client, client)?,
        address: rate("--limit-address", limit_address, address)?,
        sign_in: rate("--limit-sign-in", limit_sign_in, sign_in)?,
        name: rate("--limit-sign-in-name", limit_sign_in_name, name)?,
        race: rate("--limit-race", &Some(limit_race.clone()), "off")?,
    };
    let number = |flag, set: &Option<String>, default: &str| {
        let number = limit(set, default).map(|text| {
            let number = text.parse().ok().filter(|number| (1..=MAX_NUMBER).contains(number));
            number.ok_or_else(|| {
                let why = format!("“{text}” is not a whole number, 1 to {MAX_NUMBER}; or off");
                InvalidSetting { flag, why }
            })
        });
        number.transpose()
    };
    let max_connections =
        number("--limit-connections", limit_connections, DEFAULT_MAX_CONNECTIONS)?;
    let max_unpaid_orders = number("--limit-unpaid", limit_unpaid, DEFAULT_UNPAID_LIMIT)?;
    let invalid = |flag| move |why| InvalidSetting { flag, why };
    let proxies = TrustedProxies::parse(trusted_proxies).map_err(invalid("--trusted-proxies"))?;
    let public_hosts =
        PublicHosts::parse(&options.public_hosts).map_err(invalid("--public-hosts"))?;
    Ok(WebSettings { rates, proxies, max_connections, public_hosts, max_unpaid_orders })
}

/// Returns host and port of each replica for races; `own` without others.
pub fn race_hosts(options: &ServeArgs, own: SocketAddr) -> Result<Vec<String>, InvalidSetting> {
    let urls = options.replica_urls.iter().map(|url| url.trim()).filter(|url| !url.is_empty());
    let host = |url: &str| {
        let host = url.strip_prefix("http://").map(|host| host.trim_end_matches('/'));
        let host = host.filter(|host| !host.is_empty() && !host.contains(['/', '@', ' ']));
        let why = || format!("“{url}” is not the URL of a replica: http://HOST:PORT");
        let host = host.ok_or_else(|| InvalidSetting { flag: "--replica-urls", why: why() })?;
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(if has_port { host.to_owned() } else { format!("{host}:80") })
    };
    let hosts: Vec<String> = urls.map(host).collect::<Result<_, _>>()?;
    Ok(if hosts.is_empty() { vec![reachable(own).to_string()] } else { hosts })
}
