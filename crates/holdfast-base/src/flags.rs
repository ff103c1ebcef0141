//! Parsers of flag values. Their errors state which values are valid.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of whole numbers in `range`. Its error always names the range.
pub fn whole_number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("a whole number, {} to {}", range.start(), range.end()))
    }
}

/// Parses the number of nodes of a quorum. An even number tolerates no more failures than the odd
/// number below it; one or two nodes tolerate none.
pub fn quorum_nodes(text: &str) -> Result<u16, String> {
    let nodes = text.parse().ok().filter(|nodes| [0, 3, 5].contains(nodes));
    nodes.ok_or_else(|| "3 or 5, or 0 for none".to_owned())
}

/// Parses a part of a list: behind a comma there may be a space.
pub fn list_part(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_owned())
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "0.1 to 600 seconds".to_owned())
}

/// Parses a listen address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or a port alone.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.replace("localhost:", "127.0.0.1:");
    let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
    text.parse().or_else(|_| text.parse().map(loopback)).map_err(|_| {
        "an address and a port, e.g. 127.0.0.1:8080; the port is 1 to 65535".to_owned()
    })
}
