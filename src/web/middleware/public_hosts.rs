//! The host names of the shop; see [`check_host`](super::admission::check_host).

use actix_web::http::uri::Authority;

/// The host names under which clients know the shop; any if empty.
#[derive(Debug, Clone, Default)]
pub struct PublicHosts(Vec<String>);

impl PublicHosts {
    /// Parses names (`shop.example.org`, `[::1]`) and patterns (`*.example.org`); ignores ports.
    pub fn parse(names: &[String]) -> Result<Self, String> {
        let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let name = |name: &str| {
            let plain = !name.strip_prefix("*.").unwrap_or(name).contains(['*', '@']);
            host_name(name).filter(|_| plain).ok_or_else(|| {
                format!("“{name}” is no host name, such as shop.example.org or *.example.org")
            })
        };
        names.map(name).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn admits(&self, host: &str) -> bool {
        let Some(host) = host_name(host) else { return false };
        self.0.iter().any(|name| match name.strip_prefix('*') {
            Some(domain) => host.len() > domain.len() && host.ends_with(domain),
            None => host == *name,
        })
    }
}

/// Returns the name in `name:port`, in lower case and without the dot of the root.
fn host_name(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let name = authority.host();
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_hosts_are_admitted_with_any_port() {
        let names = ["Shop.example.org:443", "*.localhost", "127.0.0.1", "[::1]", " "];
        let names = names.map(str::to_owned);
        let hosts = PublicHosts::parse(&names).expect("names");
        for host in ["shop.example.org", "SHOP.example.org.:80", "a.b.localhost:8080", "[::1]:1"] {
            assert!(hosts.admits(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost",
            ".localhost",
            "xshop.example.org",
            "127.0.0.1.evil.org",
            "shop.example.org@evil.example",
            "127.0.0.1, evil.example",
            "::1",
        ] {
            assert!(!hosts.admits(host), "{host}");
        }
    }

    #[test]
    fn malformed_host_is_named_in_error() {
        for name in ["http://shop/", "*example.org", "shop.*.org", "user@shop.example.org"] {
            let error = PublicHosts::parse(&[name.to_owned()]).expect_err("no name");
            assert!(error.contains(name), "{error}");
        }
    }
}
