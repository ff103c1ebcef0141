//! The servers of the user's own (`--backend-proxy`), before which the judge puts a proxy.

use std::ops::Range;

use anyhow::ensure;

/// A server of the user's own, whose URL the adapter has in an environment variable. It may have
/// several addresses, separated by commas, or be a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) variable: String,
    pub(super) url: String,
    /// Where the addresses are in the URL.
    place: Range<usize>,
}

impl Backend {
    /// Finds the addresses in a URL. Fails if one has no port, or if the server asks for TLS: its
    /// certificate is not for the proxy.
    pub(super) fn new(variable: &str, url: &str) -> anyhow::Result<Self> {
        let option = format!("--backend-proxy {variable}={url}");
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let needs_tls = ["https", "rediss", "mysqls", "amqps"].contains(&scheme)
            || ["sslmode=require", "sslmode=verify", "tls=true"].iter().any(|it| rest.contains(it));
        ensure!(
            !needs_tls,
            "{option}: a server that needs TLS can't be behind a proxy, for which its certificate \
             is not valid. Start it without TLS, or pass its URL by --env: then no fault of the \
             network reaches it"
        );

        let start = url.len() - rest.len();
        let end = rest.find(['/', '?']).map_or(url.len(), |at| start + at);
        let place = match is_socket(url) {
            true => 0..url.len(),
            false => url[..end].rfind('@').map_or(start, |at| at + 1)..end,
        };
        let has_port = |address: &str| {
            address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        };
        ensure!(
            is_socket(url) || url[place.clone()].split(',').all(has_port),
            "{option}: it must have a host and a port, for example {variable}=http://127.0.0.1:2379"
        );

        Ok(Self { variable: variable.to_owned(), url: url.to_owned(), place })
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.url[self.place.clone()].split(',')
    }

    /// Returns the URL with other addresses.
    pub(super) fn url_at(&self, addresses: &[String]) -> String {
        let mut url = self.url.clone();
        url.replace_range(self.place.clone(), &addresses.join(","));
        url
    }
}

pub(super) fn is_socket(address: &str) -> bool {
    address.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_url_are_replaced() {
        let at = |url: &str| {
            let backend = Backend::new("X", url).unwrap();
            let proxies = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
            backend.url_at(&proxies[..backend.addresses().count()])
        };
        assert_eq!(at("http://localhost:2379"), "http://127.0.0.1:1");
        assert_eq!(at("mysql://a:b@db:3306/lock?x=@"), "mysql://a:b@127.0.0.1:1/lock?x=@");
        assert_eq!(at("zk1:2181,zk2:2181/chroot"), "127.0.0.1:1,127.0.0.1:2/chroot");
        assert_eq!(at("/run/mysqld/mysqld.sock"), "127.0.0.1:1");

        let refused = |url: &str| Backend::new("X", url).unwrap_err().to_string();
        assert!(refused("http://localhost").contains("a host and a port"));
        assert!(refused("rediss://localhost:6379").contains("needs TLS"));
    }
}
