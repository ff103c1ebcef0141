//! The replicas: `holdfast serve` on the listen port and the ports after it.
//!
//! Guarantees that a port in use is found before anything starts, and that a replica is ready only
//! if its `/readyz` returns 200. Does not reserve the ports: another process may take one between
//! the check and the replica's own bind; then the replica's log says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::{Error, Result};
use super::spawner::{ChildEnvironment, ChildSpec, ShutdownPolicy};

/// Timeout for opening its pools and its port.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a request to `/readyz`, which itself asks Postgres and Redis.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// Grace period to answer open requests.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Maximum length of a response that is read and quoted.
const MAX_RESPONSE_BYTES: u64 = 2 << 10;
/// Default pool size of a replica: sixteen replicas stay below Postgres' limit.
const DEFAULT_POOL_SIZE: &str = "16";

#[derive(Debug)]
pub(super) struct ReplicaOptions<'a> {
    pub(super) program: &'a Path,
    pub(super) database_url: &'a str,
    pub(super) redis_url: &'a str,
    /// Separated by commas; may be empty.
    pub(super) redlock_urls: &'a str,
    pub(super) lock: &'a str,
    pub(super) lab: bool,
}

/// Returns the replicas' addresses: the first, and those on the ports after it.
pub(super) fn addresses(listen: SocketAddr, replicas: u16) -> Result<Vec<SocketAddr>> {
    let first = listen.port();
    let no_such_port = || Error::NoSuchPort { listen, replicas };
    let last = first.checked_add(replicas.saturating_sub(1)).filter(|_| first > 0);
    let ports = first..=last.ok_or_else(no_such_port)?;
    Ok(ports.map(|port| SocketAddr::new(listen.ip(), port)).collect())
}

pub(super) fn check_free(addresses: &[SocketAddr]) -> Result<()> {
    for (index, address) in addresses.iter().enumerate() {
        TcpListener::bind(address).map_err(|source| Error::PortTaken {
            number: index + 1,
            address: *address,
            source,
        })?;
    }
    Ok(())
}

/// Returns the URL of a replica for clients on this machine.
pub(super) fn base_url(address: SocketAddr) -> String {
    format!("http://{}", reachable(address))
}

pub(super) fn spec(
    address: SocketAddr,
    pool_size: Option<u32>,
    options: &ReplicaOptions<'_>,
    log: PathBuf,
) -> ChildSpec {
    let port = address.port();
    let set = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let mut changes = vec![
        set("DATABASE_URL", options.database_url),
        set("REDIS_URL", options.redis_url),
        set("REDLOCK_URLS", options.redlock_urls),
        set("HOLDFAST_LISTEN", &address.to_string()),
        set("HOLDFAST_LOCK", options.lock),
        set("HOLDFAST_LAB", if options.lab { "on" } else { "off" }),
        // One name for all replicas would be ambiguous; without it, each is named by its port.
        ("HOLDFAST_REPLICA".to_owned(), None),
    ];
    match pool_size {
        Some(size) => changes.push(set("HOLDFAST_POOL_SIZE", &size.to_string())),
        None if std::env::var_os("HOLDFAST_POOL_SIZE").is_none() => {
            changes.push(set("HOLDFAST_POOL_SIZE", DEFAULT_POOL_SIZE));
        }
        None => {}
    }
    // `PGSSLMODE`, `PGOPTIONS` etc. are meant for the user's own Postgres.
    let theirs = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    changes.extend(theirs.filter(|name| name.starts_with("PG")).map(|name| (name, None)));
    ChildSpec {
        name: format!("replica {port}"),
        role: format!("replica-{port}"),
        program: options.program.to_owned(),
        args: vec!["serve".into()],
        environment: ChildEnvironment::Inherited(changes),
        account: None,
        log,
        shutdown: ShutdownPolicy::terminate(GRACE_PERIOD),
    }
}

pub(super) async fn check_ready(address: SocketAddr) -> std::result::Result<(), String> {
    match timeout(ATTEMPT_TIMEOUT, request_readyz(reachable(address))).await {
        Ok(Ok(answer)) if answer.split(' ').nth(1) == Some("200") => Ok(()),
        Ok(Ok(answer)) => Err(format!("/readyz answered: {}", answer.trim())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("/readyz did not answer".to_owned()),
    }
}

/// Sends a minimal HTTP request; returns the beginning of the response.
async fn request_readyz(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Replaces the unspecified address, which is not connectable, with loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_ports_are_consecutive_and_never_wrap() {
        let listen = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let three = addresses(listen("127.0.0.1:8080"), 3).expect("there are ports");
        let urls: Vec<_> = three.into_iter().map(base_url).collect();
        assert_eq!(
            urls,
            ["http://127.0.0.1:8080", "http://127.0.0.1:8081", "http://127.0.0.1:8082"]
        );
        assert!(addresses(listen("127.0.0.1:65535"), 2).is_err());
        assert!(addresses(listen("127.0.0.1:0"), 1).is_err());
    }

    #[test]
    fn unspecified_address_is_reached_on_loopback() {
        assert_eq!(base_url("0.0.0.0:80".parse().expect("an address")), "http://127.0.0.1:80");
        assert_eq!(base_url("[::]:80".parse().expect("an address")), "http://[::1]:80");
    }
}
