//! Streams in memory instead of connections to a server, for tests that explore interleavings.

use std::cell::RefCell;

use tokio::io::DuplexStream;

type Connect = Box<dyn Fn() -> DuplexStream>;

thread_local! {
    static CONNECT: RefCell<Option<Connect>> = const { RefCell::new(None) };
}

/// Connects this thread with `connect` from now on.
pub(crate) fn set(connect: impl Fn() -> DuplexStream + 'static) {
    CONNECT.set(Some(Box::new(connect)));
}

/// Returns the client's end of a new stream, if this thread has no servers.
pub(super) fn stream() -> Option<DuplexStream> {
    CONNECT.with_borrow(|connect| connect.as_ref().map(|connect| connect()))
}
