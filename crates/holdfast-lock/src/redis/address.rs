//! The address of Redis: one server, a Cluster, or a primary behind sentinels.
//!
//! Guarantees: an invalid address is rejected with the list of valid forms and without its
//! password. TLS (`rediss://`, feature `tls`) is for one server only.

use redis::{ConnectionInfo, ErrorKind, IntoConnectionInfo as _, RedisError};

use super::request::tcp_settings;

/// The valid forms of an address, for messages.
pub const ADDRESS_FORMS: &str = "redis://HOST:PORT, redis+unix:///PATH, \
    redis-cluster://HOST:PORT,HOST:PORT or redis-sentinel://HOST:PORT,HOST:PORT/MASTER_NAME";

/// A parsed address.
pub(super) enum RedisAddress {
    /// One server.
    One(ConnectionInfo),
    /// Seed nodes of a Cluster; they know the other nodes.
    #[cfg(feature = "cluster")]
    Cluster(Vec<ConnectionInfo>),
    /// The sentinels, the name of the primary there, and the connection settings of the primary.
    #[cfg(feature = "sentinel")]
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, primary: ConnectionInfo },
}

impl RedisAddress {
    /// Parses an address. Its user and password are for the data servers, not for the sentinels.
    pub(super) fn read(url: &str) -> Result<Self, RedisError> {
        let address = match url.split_once("://") {
            #[cfg(feature = "cluster")]
            Some(("redis-cluster", rest)) => cluster(rest),
            #[cfg(feature = "sentinel")]
            Some(("redis-sentinel", rest)) => sentinel(rest),
            _ => node(url).map(RedisAddress::One),
        };
        address.map_err(|error| invalid(&format!("{error}. There are {ADDRESS_FORMS}")))
    }
}

#[cfg(feature = "cluster")]
fn cluster(rest: &str) -> Result<RedisAddress, RedisError> {
    let (user, hosts, path) = parts(rest);
    if !matches!(path, "" | "0") {
        return Err(invalid("a Cluster has no databases but 0"));
    }
    let nodes = hosts.split(',').map(|host| node(&format!("redis://{user}{host}")));
    nodes.collect::<Result<_, _>>().map(RedisAddress::Cluster)
}

#[cfg(feature = "sentinel")]
fn sentinel(rest: &str) -> Result<RedisAddress, RedisError> {
    let (user, hosts, path) = parts(rest);
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(invalid("the name of the master is missing behind the sentinels"));
    }
    let sentinels = hosts.split(',').map(|host| {
        // The port of an IPv6 address follows its bracket.
        let behind = host.rsplit_once(']').map_or(host, |(_, port)| port);
        let port = if behind.contains(':') { "" } else { ":26379" };
        node(&format!("redis://{host}{port}"))
    });
    Ok(RedisAddress::Sentinel {
        sentinels: sentinels.collect::<Result<_, _>>()?,
        name: name.to_owned(),
        primary: node(&format!("redis://{user}unused/{db}"))?,
    })
}

/// Splits into the user with its `@`, the hosts, and the part after the first `/`.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn parts(rest: &str) -> (&str, &str, &str) {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rfind('@').map_or(0, |at| at + 1);
    (&authority[..hosts], &authority[hosts..], path)
}

fn node(url: &str) -> Result<ConnectionInfo, RedisError> {
    Ok(url.into_connection_info()?.set_tcp_settings(tcp_settings()))
}

fn invalid(why: &str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "not an address of Redis", why.to_owned()))
}

#[cfg(test)]
#[cfg(all(feature = "cluster", feature = "sentinel"))]
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
        ] {
            let Err(error) = RedisAddress::read(url) else { panic!("{url} was read") };
            let error = error.to_string();
            assert!(error.contains(ADDRESS_FORMS) && !error.contains("hush"), "{url}: {error}");
        }
    }
}
