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

/// Rate limit of an address for joins of a class: a class behind one address joins within a minute,
/// and a billion codes take years.
const JOIN_RATE: &str = "120/m:60";

/// Rate limits of an address for files that are sent to the lab, and for pages that are drawn of
/// whole runs, while the lab is on: a class of 60 behind one address opens a file at the same time,
/// and a run at its start, at its end, and with what is handed in; one second of a core at most.
const LAB_FILE_RATE: &str = "60/m:60";
const LAB_PAGE_RATE: &str = "600/m:300";

/// Connections to Postgres that a replica has beside its pool: for audits, and one that shows the
/// others that it runs (`docs/CONFIGURATION.md`).
pub const BESIDE_POOL: u32 = 4;

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

    let defaults = Defaults { lab: options.lab.is_on() };
    // The lab's loads do not sign in, and a class does so from unknown devices.
    let is_class = options.lab.is_class();
    let of_people = Defaults { lab: options.lab.is_on() && !is_class };
    let [client, address, sign_in, name] = DEFAULT_RATES;
    let rates = Rates {
        client: defaults.rate("--limit-client", limit_client, client)?,
        address: defaults.rate("--limit-address", limit_address, address)?,
        sign_in: of_people.rate("--limit-sign-in", limit_sign_in, sign_in)?,
        name: of_people.rate("--limit-sign-in-name", limit_sign_in_name, name)?,
        join: if is_class { JOIN_RATE.parse().ok() } else { None },
        race: defaults.rate("--limit-race", &Some(limit_race.clone()), "off")?,
        lab_file: if defaults.lab { LAB_FILE_RATE.parse().ok() } else { None },
        lab_page: if defaults.lab { LAB_PAGE_RATE.parse().ok() } else { None },
    };

    let max_connections =
        defaults.number("--limit-connections", limit_connections, DEFAULT_MAX_CONNECTIONS)?;
    let max_unpaid_orders =
        defaults.number("--limit-unpaid", limit_unpaid, DEFAULT_UNPAID_LIMIT)?;

    let proxies = TrustedProxies::parse(trusted_proxies)
        .map_err(|why| InvalidSetting { flag: "--trusted-proxies", why })?;
    let public_hosts = PublicHosts::parse(&options.public_hosts)
        .map_err(|why| InvalidSetting { flag: "--public-hosts", why })?;

    Ok(WebSettings { rates, proxies, max_connections, public_hosts, max_unpaid_orders })
}

/// The limits that apply without a setting: none while the lab is on, whose loads come from one
/// address.
struct Defaults {
    lab: bool,
}

impl Defaults {
    /// Returns the text of a limit; `None` if it is off.
    fn limit(&self, set: &Option<String>, default: &str) -> Option<String> {
        let default = if self.lab { "off" } else { default };
        let text = set.as_deref().filter(|set| !set.is_empty()).unwrap_or(default);
        (text != "off").then(|| text.to_owned())
    }

    fn rate(
        &self,
        flag: &'static str,
        set: &Option<String>,
        default: &str,
    ) -> Result<Option<Rate>, InvalidSetting> {
        let rate = self.limit(set, default).map(|text| text.parse::<Rate>());
        rate.transpose().map_err(|why| InvalidSetting { flag, why })
    }

    fn number(
        &self,
        flag: &'static str,
        set: &Option<String>,
        default: &str,
    ) -> Result<Option<u32>, InvalidSetting> {
        let Some(text) = self.limit(set, default) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (1..=MAX_NUMBER).contains(&number) => Ok(Some(number)),
            _ => {
                let why = format!("“{text}” is not a whole number, 1 to {MAX_NUMBER}; or off");
                Err(InvalidSetting { flag, why })
            }
        }
    }
}

/// Returns host and port of each replica for races; `own` without others.
pub fn race_hosts(options: &ServeArgs, own: SocketAddr) -> Result<Vec<String>, InvalidSetting> {
    let mut hosts = Vec::new();
    for url in options.replica_urls.iter().map(|url| url.trim()).filter(|url| !url.is_empty()) {
        let host = race_host(url).ok_or_else(|| {
            let why = format!("“{url}” is not the URL of a replica: http://HOST:PORT");
            InvalidSetting { flag: "--replica-urls", why }
        })?;
        hosts.push(host);
    }

    if hosts.is_empty() {
        hosts.push(reachable(own).to_string());
    }
    Ok(hosts)
}

/// Returns host and port of the URL of a replica.
fn race_host(url: &str) -> Option<String> {
    let host = url.strip_prefix("http://")?.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '@', ' ']) {
        return None;
    }

    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if has_port { host.to_owned() } else { format!("{host}:80") })
}
