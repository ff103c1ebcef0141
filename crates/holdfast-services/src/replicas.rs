//! The replicas: `holdfast serve` on the listen port and the ports after it. A port in use is found
//! before anything starts; if another process takes one afterwards, the replica's log says so.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::Signal;
use tokio::time::timeout;

use super::UpArgs;
use super::data_dir::RunningUp;
use super::process::{ChildSpec, tied_command};
use crate::load;

pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a request to `/readyz`, which itself takes at most 1.8 s.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Grace period to finish open requests (10 s) and their transactions (3 s).
pub(super) const GRACE_PERIOD: Duration = Duration::from_secs(15);

/// Minimum length of a new password under `up`, where the demo users' passwords are their names.
pub const DEMO_PASSWORD_LENGTH: u16 = 3;
/// Host names of this machine alone.
const LOOPBACK_HOSTS: &str = "localhost,*.localhost,127.0.0.1,[::1]";

pub(super) fn addresses(listen: SocketAddr, replicas: u16) -> Result<Vec<SocketAddr>> {
    let first = listen.port();
    // Port 0 would be any, and `up` passes on the addresses before the replicas listen.
    let last = first.checked_add(replicas.saturating_sub(1)).filter(|_| first > 0);
    let last = last.with_context(|| {
        format!(
            "--listen {listen} with {replicas} replicas needs the ports from {first} on, and ports \
             go from 1 to 65535: choose another with --listen"
        )
    })?;
    Ok((first..=last).map(|port| SocketAddr::new(listen.ip(), port)).collect())
}

pub(super) fn check_free(addresses: &[SocketAddr]) -> Result<()> {
    for (index, address) in addresses.iter().enumerate() {
        TcpListener::bind(address).map_err(|error| {
            let other = address.port().checked_add(1_000).unwrap_or(8080);
            anyhow!(
                "replica {} cannot listen on {address}: {error}. Choose another address with \
                 --listen, e.g. --listen {}",
                index + 1,
                SocketAddr::new(address.ip(), other)
            )
        })?;
    }
    Ok(())
}

/// Returns whether this process is on a network of its own, as in a container: one without the
/// machine's devices. An interface that shares one of them (macvlan, ipvlan) looks the same.
pub(super) fn has_own_network() -> bool {
    let Ok(interfaces) = fs::read_dir("/sys/class/net") else { return false };
    interfaces.flatten().all(|interface| !interface.path().join("device").exists())
}

/// Returns the URL of a replica for clients on this machine.
pub(super) fn base_url(address: SocketAddr) -> String {
    format!("http://{}", reachable(address))
}

pub(super) fn spec(
    program: &Path,
    address: SocketAddr,
    options: &UpArgs,
    running: &RunningUp,
) -> ChildSpec {
    let mut command = tied_command(program, "TERM");
    // `PGSSLMODE`, `PGOPTIONS` etc. are meant for the user's own Postgres.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }

    command
        .arg("serve")
        // Not a variable: it proves whose process this is (`orphans.rs`), and contains no secret.
        .args(["--redis-url", &running.redis_url])
        .env("DATABASE_URL", &running.database_url)
        .env("REDLOCK_URLS", running.redlock_urls.join(","))
        .env("HOLDFAST_LISTEN", address.to_string())
        .env("HOLDFAST_LOCK", &options.lock)
        // To see what a broken lock does is what `up` is for.
        .env("HOLDFAST_UNSAFE_LOCK", "on")
        .env("HOLDFAST_LAB", options.lab.name())
        // The replicas' listeners are `up`'s own.
        .env("HOLDFAST_LOCAL_VISITORS", "on")
        .env("HOLDFAST_REPLICAS", running.replicas.join(","))
        // There is no balancer.
        .env("HOLDFAST_DRAIN_S", "0")
        // The private Redis is on a socket.
        .env_remove("HOLDFAST_REDIS_CA")
        .env_remove("HOLDFAST_REDIS_CERT")
        .env_remove("HOLDFAST_REDIS_KEY")
        // One name for all replicas would be ambiguous; without it, each is named by its port.
        .env_remove("HOLDFAST_REPLICA");

    match &options.class_url {
        Some(url) => command.env("HOLDFAST_CLASS_URL", url),
        // The demo users' passwords are their names.
        None => command.env("HOLDFAST_MIN_PASSWORD_LENGTH", DEMO_PASSWORD_LENGTH.to_string()),
    };

    // A web page under a name that resolves to loopback could sign in with a demo user's password.
    // The lab's requests name loopback, too.
    let hosts = std::env::var("HOLDFAST_PUBLIC_HOSTS").unwrap_or_default();
    if !options.demo_users_on_network || !hosts.trim().is_empty() {
        let urls = [Some(base_url(address)), options.class_url.clone()];
        let own = urls.iter().flatten().map(|url| url.trim_start_matches("http://"));
        let own = own.collect::<Vec<_>>().join(",");
        command.env("HOLDFAST_PUBLIC_HOSTS", format!("{hosts},{LOOPBACK_HOSTS},{own}"));
    }

    ChildSpec {
        name: format!("replica {}", address.port()),
        role: format!("replica-{}", address.port()),
        program: program.to_owned(),
        command,
        signal: Signal::TERM,
        grace_period: GRACE_PERIOD,
        escalation: Signal::KILL,
    }
}

/// Asks the replica that listens on `address`, on this machine, whether it is ready. Returns the
/// body of its response; the error says why it is not ready. Takes at most two seconds.
pub async fn check_ready(address: SocketAddr) -> Result<String, String> {
    let address = reachable(address);
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let (status, body) =
        match timeout(ATTEMPT_TIMEOUT, load::send(address, request.as_bytes())).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(format!("no response from {address}: {error}")),
            Err(_) => return Err(format!("no response from {address} within {ATTEMPT_TIMEOUT:?}")),
        };

    let body = String::from_utf8_lossy(&body).into_owned();
    if status == 200 { Ok(body) } else { Err(format!("/readyz responded {status}: {body}")) }
}

/// Replaces the unspecified address, which is not connectable, with loopback.
pub fn reachable(address: SocketAddr) -> SocketAddr {
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
