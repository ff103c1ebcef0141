//! Free ports for programs that take one as an argument.

use std::net::TcpListener;

/// Below the ephemeral ports, so that no outgoing connection takes one in between.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The first of `count` consecutive ports that are free on 127.0.0.1 and on ::1 (where the machine
/// has it).
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
