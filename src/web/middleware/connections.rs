//! Bounds the open connections of one address, and the time that a client may not read.
//!
//! [`ConnectionLimit::accept`] is called for every accepted connection. One above the limit is shut
//! down at once: the client reads its end. Connections of trusted proxies are not counted, because
//! they are those of many clients.
//! Tests: `tests/it/connections.rs`.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use parking_lot::Mutex;
use socket2::SockRef;

use super::address::{TrustedProxies, rate_limit_key};
use crate::metrics::HTTP_CONNECTIONS_REJECTED;

/// Time after which the kernel closes a connection whose client does not receive what was sent:
/// it is gone, or does not read. Longer than any pause of a network that still works.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);

/// The open connections of each address. Cheap to clone; clones share the counts.
#[derive(Debug, Clone)]
pub struct ConnectionLimit {
    /// Connections that one address may have open; `None` for any number.
    max: Option<usize>,
    proxies: TrustedProxies,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

/// An open connection that is counted until this is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    limit: ConnectionLimit,
    address: String,
}

impl ConnectionLimit {
    pub fn new(max: Option<usize>, proxies: TrustedProxies) -> Self {
        Self { max, proxies, open: Arc::default() }
    }

    /// Counts a connection; shuts it down if its address has too many.
    pub fn accept(&self, connection: &TcpStream) -> Option<CountedConnection> {
        let socket = SockRef::from(connection);
        #[cfg(target_os = "linux")]
        if let Err(error) = socket.set_tcp_user_timeout(Some(SEND_TIMEOUT)) {
            tracing::debug!(%error, "a connection has no timeout for sending");
        }
        let (max, peer) = (self.max?, connection.peer_addr().ok()?);
        if self.proxies.contains(peer.ip()) {
            return None;
        }
        let address = rate_limit_key(peer.ip());
        let counted = self.count(address, max);
        if counted.is_none() {
            metrics::counter!(HTTP_CONNECTIONS_REJECTED).increment(1);
            // It fails only if the client has closed the connection.
            let _ = socket.shutdown(Shutdown::Both);
        }
        counted
    }

    fn count(&self, address: String, max: usize) -> Option<CountedConnection> {
        let mut open = self.open.lock();
        let count = open.entry(address.clone()).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(CountedConnection { limit: self.clone(), address })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.limit.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}
