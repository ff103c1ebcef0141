//! Free ports for programs that take one as an argument.
//!
//! A port is free until its program listens: of two processes that look at the same time, both
//! could choose it. So each claims the ports it chooses, as long as it runs, with a Unix socket of
//! that name, which leaves no file behind. Linux only; elsewhere a collision is unlikely. The load
//! scripts do the same (`load/processes.py`).

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Range;
use std::os::unix::net::UnixDatagram;

use anyhow::Context as _;
use parking_lot::Mutex;

/// Below the ephemeral ports, so that no outgoing connection takes one in between, nor that of a
/// program that is started again.
const PORTS: Range<u16> = 20_000..30_000;
const TRIES: usize = 200;

static CLAIMED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// Returns the first of `count` consecutive ports that are free on 127.0.0.1 and on ::1 (where the
/// machine has it). No other call returns one of them while this process runs.
pub fn free_ports(count: u16) -> anyhow::Result<u16> {
    let mut tried = std::iter::repeat_with(|| rand::random_range(PORTS)).take(TRIES);
    tried.find(|first| claim(*first..*first + count)).context("no free ports on 127.0.0.1")
}

/// Claims all of the ports, or none.
fn claim(ports: Range<u16>) -> bool {
    let mut claims = Vec::new();
    for port in ports {
        let Some(claim) = claim_one(port).filter(|_| is_free(port)) else { return false };
        claims.push(claim);
    }
    CLAIMED.lock().extend(claims);
    true
}

#[cfg(target_os = "linux")]
fn claim_one(port: u16) -> Option<UnixDatagram> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    let name = SocketAddr::from_abstract_name(format!("holdfast-port-{port}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

/// Names without a file exist only on Linux.
#[cfg(not(target_os = "linux"))]
fn claim_one(_port: u16) -> Option<UnixDatagram> {
    UnixDatagram::unbound().ok()
}

fn is_free(port: u16) -> bool {
    let addresses = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    addresses.into_iter().all(|address| {
        let listener = TcpListener::bind((address, port));
        !listener.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_returned_twice() {
        let first = std::iter::repeat_with(|| free_ports(5).expect("free ports")).take(100);
        let ports: BTreeSet<u16> = first.flat_map(|first| first..first + 5).collect();
        assert_eq!(ports.len(), 500);
    }
}
