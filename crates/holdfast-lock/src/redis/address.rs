//! The address of Redis: one server, a Cluster, or a primary behind sentinels.
//!
//! Guarantees: an invalid address is rejected with the list of valid forms and without its
//! password. All servers of an address are reached with TLS, or none (`tls.rs`).

use std::io;
use std::net::IpAddr;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _, RedisError};

use super::error::text;
use super::request::tcp_settings;
use super::tls::TlsSettings;

/// The valid forms of an address, for messages.
const ADDRESS_FORMS: &str = "redis://HOST:PORT, redis+unix:///PATH, \
    redis-cluster://HOST:PORT,HOST:PORT or redis-sentinel://HOST:PORT,HOST:PORT/MASTER_NAME; \
    with TLS they begin with rediss";

pub(super) enum RedisAddress {
    One(ConnectionInfo),
    /// Seed nodes of a Cluster; they know the other nodes.
    Cluster(Vec<ConnectionInfo>),
    /// The sentinels, the name of the primary there, and the connection settings of the primary.
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        name: String,
        primary: ConnectionInfo,
    },
}

impl RedisAddress {
    pub(super) fn read(url: &str) -> Result<Self, RedisError> {
        let is_quoted = url.starts_with(['"', '\'']) || url.ends_with(['"', '\'']);
        let address = match url.split_once("://") {
            _ if is_quoted => {
                Err(invalid("it is in quotes, which env files of Docker keep: remove the quotes"))
            }
            Some(("redis-cluster", rest)) => cluster("redis", rest),
            Some(("rediss-cluster", rest)) => cluster("rediss", rest),
            Some(("redis-sentinel", rest)) => sentinel("redis", rest),
            Some(("rediss-sentinel", rest)) => sentinel("rediss", rest),
            Some(("redis" | "rediss", rest)) if parts(rest).1.contains(',') => Err(invalid(
                "it names several hosts: write redis-cluster:// for a Cluster, redis-sentinel:// for \
                 sentinels",
            )),
            _ => node(url).map(RedisAddress::One),
        };
        address.map_err(|error| invalid(&format!("{}; there are {ADDRESS_FORMS}", text(&error))))
    }

    /// Sets the certificates. With certificates, an address of the network must use TLS.
    pub(super) fn with_tls(mut self, settings: &TlsSettings) -> Result<Self, RedisError> {
        match self.entry_points().first().map(ConnectionInfo::addr) {
            Some(ConnectionAddr::TcpTls { .. }) => {}
            Some(ConnectionAddr::Tcp(..)) if !settings.is_default() => {
                return Err(invalid("certificates are given, but the address is one without TLS"));
            }
            _ => return Ok(self),
        }

        let template = settings.template()?;
        let servers: Vec<&mut ConnectionInfo> = match &mut self {
            Self::One(server) => vec![server],
            Self::Cluster(seeds) => seeds.iter_mut().collect(),
            Self::Sentinel { sentinels, primary, .. } => {
                sentinels.iter_mut().chain([primary]).collect()
            }
        };
        for server in servers {
            if let Some((host, port)) = host_and_port(server.addr()) {
                *server = server.clone().set_addr(replace_host(&template, host, port));
            }
        }
        Ok(self)
    }

    pub(super) fn is_plain_text_on_network(&self) -> bool {
        self.entry_points().iter().any(|server| match server.addr() {
            ConnectionAddr::Tcp(host, _) => {
                let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
                host != "localhost" && !is_loopback
            }
            _ => false,
        })
    }

    fn entry_points(&self) -> &[ConnectionInfo] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Cluster(seeds) => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

/// Returns the address of another server, with the TLS of `template`.
pub(super) fn replace_host(template: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match template {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

pub(super) fn host_and_port(address: &ConnectionAddr) -> Option<(String, u16)> {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// Says what is missing where a Unix socket should be: the system's words name no file.
pub(super) fn name_missing_socket(address: &ConnectionAddr, error: RedisError) -> RedisError {
    let ConnectionAddr::Unix(socket) = address else { return error };
    if error.kind() != ErrorKind::Io || socket.exists() {
        return error;
    }

    let missing = match socket.parent().filter(|folder| !folder.exists()) {
        Some(folder) => format!(
            "the folder {} of its socket does not exist. If it was removed, restart the server",
            folder.display()
        ),
        None => format!("there is no socket {}", socket.display()),
    };
    io::Error::new(io::ErrorKind::NotFound, missing).into()
}

fn cluster(scheme: &str, rest: &str) -> Result<RedisAddress, RedisError> {
    let (user, hosts, path) = parts(rest);
    if !matches!(path, "" | "0") {
        return Err(invalid("a Cluster has no databases but 0"));
    }
    let nodes = hosts.split(',').map(|host| node(&format!("{scheme}://{user}{host}")));
    nodes.collect::<Result<_, _>>().map(RedisAddress::Cluster)
}

fn sentinel(scheme: &str, rest: &str) -> Result<RedisAddress, RedisError> {
    let (user, hosts, path) = parts(rest);
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(invalid("the name of the master is missing behind the sentinels"));
    }

    let sentinels = hosts.split(',').map(|host| {
        // The port of an IPv6 address follows its bracket.
        let behind = host.rsplit_once(']').map_or(host, |(_, port)| port);
        let port = if behind.contains(':') { "" } else { ":26379" };
        node(&format!("{scheme}://{host}{port}"))
    });

    Ok(RedisAddress::Sentinel {
        sentinels: sentinels.collect::<Result<_, _>>()?,
        name: name.to_owned(),
        primary: node(&format!("{scheme}://{user}unused/{db}"))?,
    })
}

/// Splits into the user with its `@`, the hosts, and the part after the first `/`.
fn parts(rest: &str) -> (&str, &str, &str) {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rfind('@').map_or(0, |at| at + 1);
    (&authority[..hosts], &authority[hosts..], path)
}

fn node(url: &str) -> Result<ConnectionInfo, RedisError> {
    let server = url.into_connection_info()?.set_tcp_settings(tcp_settings());
    if matches!(server.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(invalid("#insecure is not supported: the server could be any"));
    }
    Ok(server)
}

fn invalid(why: &str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "", why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{ADDRESS_FORMS, RedisAddress};

    fn read(url: &str) -> (Vec<String>, String) {
        let (nodes, template) = match RedisAddress::read(url).unwrap() {
            RedisAddress::One(info) => (vec![info.clone()], info),
            RedisAddress::Cluster(nodes) => (nodes.clone(), nodes[0].clone()),
            RedisAddress::Sentinel { sentinels, primary, .. } => (sentinels, primary),
        };
        let redis = template.redis_settings();
        let user = redis.username().unwrap_or("").to_owned();
        let template = format!("{user}:{}/{}", redis.password().unwrap_or(""), redis.db());
        (nodes.iter().map(|node| node.addr().to_string()).collect(), template)
    }

    #[test]
    fn every_address_form_is_parsed() {
        assert_eq!(read("redis://a:1/2"), (vec!["a:1".to_owned()], ":/2".to_owned()));
        assert_eq!(read("redis+unix:///tmp/x.sock").0, ["/tmp/x.sock"]);
        let (nodes, template) = read("redis-cluster://me:s%40c@a:1,b,[::1]:3/0");
        assert_eq!((nodes.len(), template.as_str()), (3, "me:s@c/0"));
        assert_eq!(&nodes[..2], ["a:1", "b:6379"]);
        let (nodes, template) = read("redis-sentinel://:pw@a,b:2/main/3");
        assert_eq!((nodes.join(" "), template.as_str()), ("a:26379 b:2".to_owned(), ":pw/3"));
    }

    #[test]
    fn remote_plain_text_is_recognized() {
        let is_plain = |url| RedisAddress::read(url).unwrap().is_plain_text_on_network();
        for url in ["redis://redis:1", "redis-cluster://localhost,10.0.0.1", "redis-sentinel://a/b"]
        {
            assert!(is_plain(url), "{url}");
        }
        for url in ["redis://localhost", "redis://[::1]:1", "redis-sentinel://127.0.0.1/b"] {
            assert!(!is_plain(url), "{url}");
        }
        assert!(!is_plain("redis+unix:///tmp/x.sock"));
        for url in ["rediss://redis:1", "rediss-cluster://a,b", "rediss-sentinel://a,b/c"] {
            assert!(!is_plain(url), "{url}");
        }
    }

    #[test]
    fn certificates_require_address_with_tls() {
        let pem = rcgen::generate_simple_self_signed(Vec::new()).unwrap().cert.pem();
        let settings = super::TlsSettings::default().with_authorities(pem.as_bytes()).unwrap();
        for (plain, tls) in [
            ("redis://a", "rediss://a"),
            ("redis-cluster://a,b", "rediss-cluster://a,b"),
            ("redis-sentinel://a,b/c", "rediss-sentinel://a,b/c"),
        ] {
            assert!(RedisAddress::read(plain).unwrap().with_tls(&settings).is_err(), "{plain}");
            assert!(RedisAddress::read(tls).unwrap().with_tls(&settings).is_ok(), "{tls}");
        }
    }

    #[test]
    fn misread_addresses_are_named() {
        for (url, why) in [
            ("'redis://:hush@a:1'", "remove the quotes"),
            ("\"rediss-cluster://a,b\"", "remove the quotes"),
            ("redis://:hush@a:1,b:2/0", "redis-cluster:// for a Cluster"),
            ("rediss://me:hush@a,b", "redis-sentinel:// for sentinels"),
        ] {
            let Err(error) = RedisAddress::read(url) else { panic!("{url} was read") };
            let error = error.to_string();
            assert!(error.contains(why) && !error.contains("hush"), "{url}: {error}");
        }
        // The comma is of the password.
        assert_eq!(read("redis://:hu,sh@a:1").0, ["a:1"]);
    }

    #[test]
    fn missing_folder_of_socket_is_named() {
        let unix = |path: &str| redis::ConnectionAddr::Unix(path.into());
        let error = || std::io::Error::from(std::io::ErrorKind::NotFound).into();
        for (path, why) in [
            ("/nonexistent/redis.sock", "the folder /nonexistent of its socket does not exist"),
            ("/nonexistent.sock", "there is no socket /nonexistent.sock"),
        ] {
            let named = super::name_missing_socket(&unix(path), error()).to_string();
            assert!(named.contains(why), "{named}");
        }
    }

    #[test]
    fn invalid_address_error_hides_password() {
        for url in [
            "",
            "host:6379",
            "http://host",
            "redis-cluster://",
            "redis-cluster://:hush@a:1,",
            "redis-cluster://a:1/1",
            "redis-sentinel://:hush@a:1",
            "redis-sentinel://a:1/",
            "redis-sentinel://a:1/main/x",
            "rediss://:hush@a:1#insecure",
            "\"redis://:hush@a:1\"",
            "redis://:hush@a:1,b:2",
        ] {
            let Err(error) = RedisAddress::read(url) else { panic!("{url} was read") };
            let error = error.to_string();
            assert!(error.contains(ADDRESS_FORMS) && !error.contains("hush"), "{url}: {error}");
        }
    }
}
