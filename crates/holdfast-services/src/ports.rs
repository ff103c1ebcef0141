//! Free ports for programs that take one as an argument.
//!
//! A port is free until its program listens: of two that look at the same time, both could choose
//! it. So each port that is chosen is claimed as long as this process runs, and on Linux among
//! processes too, with a Unix socket of that name, which leaves no file behind. The load scripts do
//! the same (`load/processes.py`).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Range;
use std::os::unix::net::UnixDatagram;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

/// Below the ephemeral ports, so that no outgoing connection takes one in between, nor that of a
/// program that is started again.
const PORTS: Range<u16> = 20_000..30_000;
const TRIES: usize = 200;

/// The claimed ports, with what claims them among processes.
static CLAIMED: Mutex<BTreeMap<u16, Option<UnixDatagram>>> = Mutex::new(BTreeMap::new());

/// Returns the first of `count` consecutive ports that are free on 127.0.0.1 and on ::1 (where the
/// machine has it). No other call returns one of them while this process runs.
pub fn free_ports(count: u16) -> anyhow::Result<u16> {
    for _ in 0..TRIES {
        let first = rand::random_range(PORTS);
        if claim(first..first + count)? {
            return Ok(first);
        }
    }

    let Range { start, end } = PORTS;
    bail!("no free ports on 127.0.0.1 from {start} to {end}: end what listens there, and try again")
}

/// Claims all of the ports, or none.
fn claim(ports: Range<u16>) -> anyhow::Result<bool> {
    let mut claimed = CLAIMED.lock();
    let mut claims = Vec::new();
    for port in ports {
        if claimed.contains_key(&port) || !is_free(port) {
            return Ok(false);
        }
        match claim_among_processes(port) {
            Ok(socket) => claims.push((port, socket)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(false),
            Err(error) => return Err(error).context("can't claim a port"),
        }
    }

    claimed.extend(claims);
    Ok(true)
}

#[cfg(target_os = "linux")]
fn claim_among_processes(port: u16) -> io::Result<Option<UnixDatagram>> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    let name = SocketAddr::from_abstract_name(format!("holdfast-port-{port}"))?;
    UnixDatagram::bind_addr(&name).map(Some)
}

/// Names without a file exist only on Linux; elsewhere a collision is unlikely.
#[cfg(not(target_os = "linux"))]
fn claim_among_processes(_port: u16) -> io::Result<Option<UnixDatagram>> {
    Ok(None)
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
