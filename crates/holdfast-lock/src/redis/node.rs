//! A node of a Cluster: its connection, and the memory of an outage.
//!
//! Guarantees: after a call without a response, further ones fail at once until the node responds
//! to the `PING` of a task.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ConnectionInfo, RedisError};

use super::background::Background;
use super::request::{RESPONSE_TIMEOUT, RedisRequest, in_time, timed_out};
use super::server::ServerConnection;
use crate::time::{Instant, sleep};

/// A call that fails sooner proves no outage: the next one may find a new connection.
const MIN_COST: Duration = RESPONSE_TIMEOUT.checked_div(2).unwrap();
/// Pause between two `PING`s to a node that does not respond.
const PING_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) struct ClusterNode(Arc<NodeInternals>);

struct NodeInternals {
    connection: ServerConnection,
    background: Background,
    last_results: Mutex<NodeResults>,
}

#[derive(Default)]
struct NodeResults {
    responded_at: Option<Instant>,
    /// Set while the node does not respond.
    outage: Option<RedisError>,
}

/// A call under way. If it is dropped before it ends, its caller has given up.
pub(super) struct NodeCall<'a> {
    node: &'a ClusterNode,
    sent: Instant,
    ended: bool,
}

impl ClusterNode {
    pub(super) fn new(address: ConnectionInfo, background: Background) -> Result<Self, RedisError> {
        let connection = ServerConnection::new(address, None)?;
        Ok(Self(Arc::new(NodeInternals { connection, background, last_results: Mutex::default() })))
    }

    pub(super) fn connection(&self) -> &ServerConnection {
        &self.0.connection
    }

    pub(super) fn outage(&self) -> Option<RedisError> {
        self.0.last_results.lock().outage.clone()
    }

    pub(super) fn begin_call(&self) -> NodeCall<'_> {
        NodeCall { node: self, sent: Instant::now(), ended: false }
    }

    fn record_response(&self) {
        *self.0.last_results.lock() =
            NodeResults { responded_at: Some(Instant::now()), outage: None };
    }

    /// Records that a call which was sent at `sent` got no response. If it is the first one since
    /// the node responded, starts the task that waits for the end of the outage.
    fn record_silence(&self, sent: Instant, error: RedisError) {
        let mut last = self.0.last_results.lock();
        let responded_since = last.responded_at.is_some_and(|at| at >= sent);
        if responded_since || last.outage.is_some() {
            return;
        }
        last.outage = Some(error);
        self.0.background.spawn(ping_until_it_responds(Arc::downgrade(&self.0)));
    }
}

impl NodeCall<'_> {
    pub(super) fn end<T>(mut self, result: &Result<T, RedisError>) {
        self.ended = true;
        match result {
            Err(error) if error.is_io_error() => {
                // No process listens there, although the time that this cost is short.
                if error.is_connection_refusal() || self.sent.elapsed() >= MIN_COST {
                    self.node.record_silence(self.sent, error.clone());
                }
            }
            _ => self.node.record_response(),
        }
    }
}

impl Drop for NodeCall<'_> {
    fn drop(&mut self) {
        if !self.ended && self.sent.elapsed() >= MIN_COST {
            self.node.record_silence(self.sent, timed_out());
        }
    }
}

/// Ends the outage when the node responds, also with an error; gives up once the node is forgotten.
async fn ping_until_it_responds(node: Weak<NodeInternals>) {
    while let Some(node) = node.upgrade().map(ClusterNode) {
        let ping = redis::cmd("PING");
        let response = in_time(node.connection().send(RedisRequest::Command(&ping))).await;
        if !response.is_err_and(|error| error.is_io_error()) {
            return node.record_response();
        }
        drop(node);
        sleep(PING_PAUSE).await;
    }
}
