//! What a proxy to Postgres does to a single statement: it loses its response, or delays it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::exchanges::WatchedConnection;

/// What is to happen to the next statement on any connection.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// The response to the next statement is to be dropped.
    pub armed: AtomicBool,
    /// The statement was sent; the next response is the one to drop.
    swallow: AtomicBool,
    /// The next statement is to be delayed.
    pub hold: AtomicBool,
    /// The delayed statement is to be delivered now.
    pub deliver: Notify,
    /// It has its response.
    pub delivered: Notify,
}

/// What passes through one direction of a connection.
pub(super) trait Passing {
    /// Returns whether the chunk goes on; otherwise the connection ends.
    async fn before(&self, chunk: &[u8]) -> bool;

    /// The chunk was forwarded.
    async fn after(&self);
}

/// The statements of one connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    statements: Arc<Statements>,
    watched: Option<WatchedConnection>,
    /// The delayed statement was sent, and has no response yet.
    is_delivering: AtomicBool,
    /// The chunk that is being forwarded was delayed.
    was_held: AtomicBool,
    responded: Notify,
}

impl Connection {
    pub fn new(statements: Arc<Statements>, watched: Option<WatchedConnection>) -> Self {
        Self { statements, watched, ..Self::default() }
    }

    pub fn is_watched(&self) -> bool {
        self.watched.is_some()
    }
}

pub(super) struct Requests<'a>(pub &'a Connection);

impl Passing for Requests<'_> {
    async fn before(&self, chunk: &[u8]) -> bool {
        let Connection { statements, is_delivering, was_held, .. } = self.0;
        let is_executed = is_executed(chunk);
        if is_executed && statements.armed.swap(false, Ordering::SeqCst) {
            statements.swallow.store(true, Ordering::SeqCst);
        }

        let begins = chunk.get(5..).is_some_and(|text| text.starts_with(b"begin"));
        if (is_executed || begins) && statements.hold.swap(false, Ordering::SeqCst) {
            statements.deliver.notified().await;
            is_delivering.store(true, Ordering::SeqCst);
            was_held.store(true, Ordering::SeqCst);
        }

        if let Some(watched) = &self.0.watched {
            watched.request(chunk);
        }
        true
    }

    /// The connection stays until the delayed statement has its response: its client may be gone.
    async fn after(&self) {
        if self.0.was_held.swap(false, Ordering::SeqCst) {
            self.0.responded.notified().await;
        }
    }
}

pub(super) struct Responses<'a>(pub &'a Connection);

impl Passing for Responses<'_> {
    async fn before(&self, chunk: &[u8]) -> bool {
        let Connection { statements, is_delivering, responded, .. } = self.0;
        if let Some(watched) = &self.0.watched
            && !watched.response(chunk).await
        {
            return false;
        }

        if is_delivering.swap(false, Ordering::SeqCst) {
            statements.delivered.notify_one();
            responded.notify_one();
        }
        !statements.swallow.swap(false, Ordering::SeqCst)
    }

    async fn after(&self) {}
}

/// Returns whether a statement with parameters is executed, and not only prepared. Without
/// parameters it may be the check whether Postgres is writable, which comes at any time.
fn is_executed(message: &[u8]) -> bool {
    const LENGTH_WITHOUT_PARAMETERS: u32 = 30;
    let [b'B', length @ ..] = message else { return false };
    length
        .first_chunk()
        .is_some_and(|length| u32::from_be_bytes(*length) > LENGTH_WITHOUT_PARAMETERS)
}
