//! The handling of what passes through a proxy to Postgres, or to Redis, and its watcher.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

/// The server to which a connection leads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ServerKind {
    #[default]
    Postgres,
    Redis,
}

/// Handles a connection, chunk by chunk.
pub trait Passing: Send + Sync {
    fn server(&self) -> ServerKind {
        ServerKind::Postgres
    }

    /// The client has sent a chunk. It goes on when the future ends; with `false` never, and the
    /// connection is closed.
    fn request<'a>(&'a self, chunk: &'a [u8]) -> BoxFuture<'a, bool>;

    /// The chunk went on. Until the future ends, the connection stays, even without its client.
    fn requested(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// The server has sent a chunk, of which the same is true.
    fn response<'a>(&'a self, chunk: &'a [u8]) -> BoxFuture<'a, bool>;
}

/// Receives the exchanges of a link, and may hold them up.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Something was read from the client, which ends these exchanges. It goes on to the server
    /// when the future ends; with `false` never, and its connection is closed.
    fn sent(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, bool>;

    /// An answer was read from the server. It goes on to the client when the future ends; with
    /// `false` never, and its connection is closed.
    fn answered(&self, exchange: Exchange) -> BoxFuture<'_, bool>;

    /// A connection was closed, by either side: nothing more comes of it.
    fn closed(&self, _connection: u64) {}

    /// Nothing more is read on a connection, after this. It stays, and what its client sends passes
    /// untold.
    fn unread(&self, _why: &'static str) {}
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    pub server: ServerKind,
    /// Number of the connection, of its proxy.
    pub connection: u64,
    /// Number of the Sync or simple query that ends it, or of what was sent to Redis at once, on
    /// its connection.
    pub number: u64,
    /// The server's process that serves the connection, as it says itself.
    pub backend: i32,
    pub statements: Vec<Statement>,
    /// Microseconds of the machine's monotonic clock.
    pub sent_us: u64,
    pub answered_us: u64,
    /// A transaction is open after it.
    pub in_transaction: bool,
    pub(super) is_simple: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statement {
    /// Of a command its name, in upper case.
    pub text: Arc<str>,
    /// The values of its parameters, `None` for null; or the arguments of a command.
    pub values: Vec<Option<String>>,
    /// The command tag, such as `UPDATE 1`; or the answer of Redis, shortened. `None` without an
    /// answer.
    pub tag: Option<String>,
    pub error: Option<String>,
    /// The columns of its first row, with their names.
    pub row: Vec<(String, Option<String>)>,
}

/// Passes answers to the watcher, one after the other. Returns whether they go on to the client.
pub(super) async fn tell(watcher: &dyn Watcher, answered: Vec<Exchange>) -> bool {
    for exchange in answered {
        if !watcher.answered(exchange).await {
            return false;
        }
    }
    true
}
