//! Ports for programs that must be told theirs.

use std::net::TcpListener;

/// Below the ephemeral ports: what others dial from can't take them in between.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The first of that many ports in a row that nobody listens on, neither on 127.0.0.1 nor on ::1
/// (where a machine has that).
pub fn free_ports(count: u16) -> u16 {
    let taken = |address: &str, port| {
        TcpListener::bind((address, port))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    let free = |port| !taken("127.0.0.1", port) && !taken("::1", port);
    std::iter::repeat_with(|| rand::random_range(PORTS))
        .take(200)
        .find(|first| (*first..first + count).all(free))
        .expect("free ports below the ephemeral ones")
}
