//! Determines the client address of a request behind proxies.
//!
//! Any client can send `X-Forwarded-For`. Each proxy appends the address of its peer, so the header
//! is read from its end for as long as the addresses belong to trusted proxies; the first address
//! that does not is the client's. `Forwarded` is ignored: a proxy that writes one of the two passes
//! the other on as the client sent it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Parses addresses (`10.0.0.7`) and networks (`10.0.0.0/8`, `fd00::/8`).
    pub fn parse(names: &[String]) -> Result<Self, String> {
        let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let network = |name: &str| {
            let one = || name.parse::<IpAddr>().map(IpNet::from);
            name.parse::<IpNet>().or_else(|_| one()).map_err(|_| {
                format!("“{name}” is no address and no network, such as 10.0.0.7 or 10.0.0.0/8")
            })
        };
        names.map(network).collect::<Result<_, _>>().map(Self)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns the client's address. `peer` is the other end of the connection, `forwarded_for` the
    /// lines of `X-Forwarded-For` in order.
    pub fn client_address<'h>(
        &self,
        peer: IpAddr,
        forwarded_for: impl DoubleEndedIterator<Item = &'h str>,
    ) -> IpAddr {
        let mut client_address = peer.to_canonical();
        if !self.contains(client_address) {
            return client_address;
        }

        let entries = forwarded_for.rev().flat_map(|line| line.rsplit(',')).map(str::trim);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            // Text that is not an address ends the chain: the last proxy counts as the client.
            let Some(address) = parse_entry(entry) else { break };
            client_address = address.to_canonical();
            if !self.contains(client_address) {
                break;
            }
        }

        client_address
    }
}

/// Parses an entry of `X-Forwarded-For`: an address, which some gateways write with the port
/// (`203.0.113.7:50000`, `[2001:db8::1]:443`) or with brackets.
fn parse_entry(entry: &str) -> Option<IpAddr> {
    if let Ok(socket) = entry.parse::<SocketAddr>() {
        return Some(socket.ip());
    }
    match entry.strip_prefix('[').and_then(|entry| entry.strip_suffix(']')) {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => entry.parse().ok(),
    }
}

/// Returns the name under which rate limits count an address: the address itself, or its /64
/// network for IPv6, because a provider assigns at least a /64 to each customer.
pub fn rate_limit_key(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => network_key(address, 64),
    }
}

/// Returns the name under which sign-ins from an IPv6 address are also counted: its /48 network,
/// which a provider assigns to a site.
pub fn sign_in_network(address: IpAddr) -> Option<String> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(network_key(address, 48)),
    }
}

fn network_key(address: Ipv6Addr, bits: u32) -> String {
    let host_bits = Ipv6Addr::BITS - bits;
    let network = u128::from(address) >> host_bits << host_bits;
    format!("{}/{bits}", Ipv6Addr::from(network))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_address(proxies: &[&str], peer: &str, forwarded_for: &[&str]) -> String {
        let proxies: Vec<String> = proxies.iter().map(|&name| name.to_owned()).collect();
        let proxies = TrustedProxies::parse(&proxies).expect("networks");
        let peer = peer.parse().expect("an address");
        proxies.client_address(peer, forwarded_for.iter().copied()).to_string()
    }

    #[test]
    fn untrusted_peer_cannot_forward_addresses() {
        assert_eq!(client_address(&[], "9.9.9.9", &["1.1.1.1"]), "9.9.9.9");
        assert_eq!(client_address(&["10.0.0.0/8"], "9.9.9.9", &["1.1.1.1"]), "9.9.9.9");
    }

    #[test]
    fn last_untrusted_address_is_the_client() {
        let ours = ["10.0.0.0/8", "fd00::/8", ""];
        assert_eq!(client_address(&ours, "10.0.0.2", &["1.1.1.1"]), "1.1.1.1");
        // The client sent the first address itself; the proxy appended the second.
        assert_eq!(client_address(&ours, "10.0.0.2", &["1.1.1.1, 2.2.2.2"]), "2.2.2.2");
        assert_eq!(client_address(&ours, "10.0.0.2", &["1.1.1.1", "2.2.2.2"]), "2.2.2.2");
        assert_eq!(client_address(&ours, "10.0.0.2", &["1.1.1.1, 2.2.2.2,10.0.0.9"]), "2.2.2.2");
        assert_eq!(client_address(&ours, "fd00::2", &["2001:db8::1"]), "2001:db8::1");
        assert_eq!(client_address(&ours, "::ffff:10.0.0.2", &["1.1.1.1"]), "1.1.1.1");
    }

    #[test]
    fn addresses_are_read_as_gateways_write_them() {
        let ours = ["10.0.0.0/8", "fd00::/8"];
        for (line, client) in [
            ("203.0.113.7:50000", "203.0.113.7"),
            ("203.0.113.7:50000, 10.0.0.9:443", "203.0.113.7"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[::ffff:203.0.113.7]:50000", "203.0.113.7"),
            (" 203.0.113.7 ,\t[fd00::2]:1", "203.0.113.7"),
            ("203.0.113.7, , 10.0.0.9,", "203.0.113.7"),
            ("", "10.0.0.2"),
        ] {
            assert_eq!(client_address(&ours, "10.0.0.2", &[line]), client, "{line}");
        }
        assert_eq!(client_address(&ours, "10.0.0.2", &["203.0.113.7", " "]), "203.0.113.7");
    }

    #[test]
    fn malformed_address_ends_forwarded_chain() {
        let ours = ["10.0.0.0/8"];
        assert_eq!(client_address(&ours, "10.0.0.2", &[]), "10.0.0.2");
        assert_eq!(client_address(&ours, "10.0.0.2", &["1.1.1.1, unknown"]), "10.0.0.2");
        assert_eq!(client_address(&ours, "10.0.0.2", &["me, 10.0.0.3"]), "10.0.0.3");
        for named in [
            "unknown",
            "_hidden",
            "unix:",
            "localhost",
            "1.1.1.1:",
            "1.1.1.1:x",
            "1.1.1.1:70000",
            "[1.1.1.1]",
            "[::1",
            "::1]",
            "[::1]:",
            "\"",
            "1.1.1.1 2.2.2.2",
        ] {
            let line = format!("1.1.1.1, {named}, 10.0.0.3");
            assert_eq!(client_address(&ours, "10.0.0.2", &[&line]), "10.0.0.3", "{named}");
        }
    }

    #[test]
    fn ipv6_client_is_counted_by_its_network() {
        let counted = |text: &str| rate_limit_key(text.parse().expect("an address"));
        assert_eq!(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(counted("2001:db8:1:2::ffff"), "2001:db8:1:2::/64");
        assert_eq!(counted("::ffff:1.2.3.4"), "1.2.3.4");
        let network = |text: &str| sign_in_network(text.parse().expect("an address"));
        assert_eq!(network("2001:db8:1:2:3:4:5:6").as_deref(), Some("2001:db8:1::/48"));
        assert_eq!(network("::ffff:1.2.3.4"), None);
    }

    #[test]
    fn malformed_network_is_named_in_error() {
        let error = TrustedProxies::parse(&["10.0.0.0/33".to_owned()]).expect_err("no network");
        assert!(error.contains("10.0.0.0/33"), "{error}");
    }
}
