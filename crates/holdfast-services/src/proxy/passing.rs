//! What is done with what passes through a proxy to Postgres.

use futures_util::future::BoxFuture;

/// What is done with a connection to Postgres, chunk by chunk.
pub trait Passing: Send + Sync {
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
