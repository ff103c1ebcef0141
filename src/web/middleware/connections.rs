//! Bounds the open connections of the process and of one address, and the time that a client may
//! not read. Connections of trusted proxies count only for the process, because they are those of
//! many clients. The limit of the process leaves file descriptors for Postgres, Redis and files.
//! Tests: `tests/it/connections.rs`.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use parking_lot::Mutex;
use socket2::SockRef;

use super::address::{TrustedProxies, rate_limit_key};
use holdfast_base::log_limit;
use holdfast_base::metrics::define_metrics;

/// Time after which the kernel closes a connection whose client does not receive what was sent:
/// it is gone, or does not read. Longer than any pause of a network that still works.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);
/// Upper bound of a worker's connections, for the memory that they take.
const MAX_OF_WORKER: usize = 25_600;
/// Connections above the limit that may be open until they are closed. Further ones wait in the
/// listener's backlog, where they take no descriptor.
const MAX_UNREFUSED: usize = 32;

define_metrics! {
    HTTP_CONNECTIONS_REJECTED: "holdfast_http_connections_rejected_total", Counter ["limit"] &[],
        "Connections closed because their address, or the process, had too many";
}

#[derive(Debug, Clone)]
pub struct ConnectionLimit(Arc<LimitState>);

#[derive(Debug)]
struct LimitState {
    workers: usize,
    max: usize,
    max_of_address: Option<usize>,
    proxies: TrustedProxies,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    all: usize,
    of_addresses: HashMap<String, usize>,
}

/// An open connection that is counted until this is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    limit: ConnectionLimit,
    address: Option<String>,
}

impl ConnectionLimit {
    /// Creates the limits of a process that may have `max_files` descriptors for connections, one
    /// worker per core. One address gets at most half of them.
    pub fn new(max_files: usize, max_of_address: Option<u32>, proxies: TrustedProxies) -> Self {
        let workers = available_parallelism().map_or(2, NonZero::get);
        let max = max_files.clamp(1, MAX_OF_WORKER * workers);
        let max_of_address = max_of_address.map(|limit| (limit as usize).min(max.div_ceil(2)));
        let open = Mutex::default();
        Self(Arc::new(LimitState { workers, max, max_of_address, proxies, open }))
    }

    pub fn workers(&self) -> usize {
        self.0.workers
    }

    pub fn max_of_worker(&self) -> usize {
        (self.0.max + MAX_UNREFUSED).div_ceil(self.0.workers)
    }

    /// Counts a connection; returns `None` if the process or its address has too many.
    pub fn accept(&self, connection: &TcpStream) -> Option<CountedConnection> {
        let socket = SockRef::from(connection);
        #[cfg(target_os = "linux")]
        if let Err(error) = socket.set_tcp_user_timeout(Some(SEND_TIMEOUT)) {
            tracing::debug!(%error, "a connection has no timeout for sending");
        }
        let counted = self.count(self.counted_address(connection));
        if let Err(limit) = counted {
            metrics::counter!(HTTP_CONNECTIONS_REJECTED, "limit" => limit).increment(1);
        }
        counted.ok()
    }

    fn counted_address(&self, connection: &TcpStream) -> Option<String> {
        self.0.max_of_address?;
        let peer = connection.peer_addr().ok()?.ip();
        (!self.0.proxies.contains(peer)).then(|| rate_limit_key(peer))
    }

    /// Counts a connection, or returns the name of the limit that it exceeds.
    fn count(&self, address: Option<String>) -> Result<CountedConnection, &'static str> {
        let LimitState { max, max_of_address, .. } = *self.0;
        let mut open = self.0.open.lock();
        if open.all >= max {
            drop(open);
            if let Some(left_out) = log_limit::admit("connections") {
                tracing::warn!(max, left_out, "a connection was refused: the process has too many");
            }
            return Err("process");
        }

        if let Some(address) = &address {
            let count = open.of_addresses.entry(address.clone()).or_default();
            if max_of_address.is_some_and(|max| *count >= max) {
                return Err("address");
            }
            *count += 1;
        }

        open.all += 1;
        Ok(CountedConnection { limit: self.clone(), address })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.limit.0.open.lock();
        open.all -= 1;
        let Some(address) = &self.address else { return };
        if let Some(count) = open.of_addresses.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                open.of_addresses.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_leaves_half_of_few_files() {
        let limit = ConnectionLimit::new(40, Some(4_096), TrustedProxies::default());
        let connect = |address: &str| limit.count(Some(address.to_owned()));
        let open: Vec<_> = (0..20).map(|_| connect("192.0.2.1")).collect();
        assert!(open.iter().all(Result::is_ok));
        assert_eq!(connect("192.0.2.1").err(), Some("address"));
        let others: Vec<_> = (0..20).map(|_| connect("192.0.2.2")).collect();
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(connect("192.0.2.3").err(), Some("process"));
    }
}
