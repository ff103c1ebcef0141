//! Proxies to the Postgres and the Redis of the tests, which simulate an outage. One loses the
//! response to a statement, or delays a statement.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use holdfast_services::{Passing, Upstream};
pub use holdfast_services::{Proxy, Traffic};
use tokio::sync::Notify;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::{options, services};

/// Time for the response to a delayed statement.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn to_postgres() -> Proxy {
    Proxy::start(postgres()).await.unwrap()
}

pub async fn to_redis() -> Proxy {
    let url = &services().running.redis_url;
    let socket = url.strip_prefix("redis+unix://").unwrap();
    Proxy::start(Upstream::Socket(socket.into())).await.unwrap()
}

fn postgres() -> Upstream {
    let socket = format!(".s.PGSQL.{}", options().get_port());
    Upstream::Socket(options().get_socket().unwrap().join(socket))
}

/// A proxy to Postgres that loses the response to a statement, or delays a statement.
pub struct StatementProxy {
    proxy: Proxy,
    statements: Arc<Statements>,
}

impl StatementProxy {
    pub async fn start() -> Self {
        let statements = Arc::<Statements>::default();
        let shared = Arc::clone(&statements);
        let new = move |_: u64| -> Box<dyn Passing> {
            Box::new(ProxyConnection {
                statements: Arc::clone(&shared),
                ..ProxyConnection::default()
            })
        };
        let proxy = Proxy::start_with(postgres(), Some(Box::new(new))).await.unwrap();
        Self { proxy, statements }
    }

    /// Drops the response to the next executed statement and closes its connection instead. The
    /// statement has been executed by then. (Earlier responses may still be in flight.)
    pub fn drop_next_response(&self) {
        self.statements.armed.store(true, Ordering::SeqCst);
    }

    /// Delays the next executed statement, or `begin`, until [`Self::deliver`].
    pub fn delay_next_statement(&self) {
        self.statements.hold.store(true, Ordering::SeqCst);
    }

    /// Delivers the delayed statement, and waits for the response of the server. The client may
    /// have disconnected.
    pub async fn deliver(&self) -> Result<(), Elapsed> {
        self.statements.deliver.notify_one();
        timeout(RESPONSE_TIMEOUT, self.statements.delivered.notified()).await
    }
}

impl Deref for StatementProxy {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

/// The treatment of the next statement on any connection.
#[derive(Default)]
struct Statements {
    /// The response to the next statement is to be dropped.
    armed: AtomicBool,
    /// The statement was sent; the next response is the one to drop.
    swallow: AtomicBool,
    /// The next statement is to be delayed.
    hold: AtomicBool,
    /// The delayed statement is to be delivered now.
    deliver: Notify,
    /// It has its response.
    delivered: Notify,
}

#[derive(Default)]
struct ProxyConnection {
    statements: Arc<Statements>,
    /// The delayed statement was sent, and has no response yet.
    is_delivering: AtomicBool,
    /// The chunk that is being forwarded was delayed.
    was_held: AtomicBool,
    responded: Notify,
}

impl Passing for ProxyConnection {
    fn request<'a>(&'a self, chunk: &'a [u8]) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let is_executed = is_executed(chunk);
            if is_executed && self.statements.armed.swap(false, Ordering::SeqCst) {
                self.statements.swallow.store(true, Ordering::SeqCst);
            }

            let begins = chunk.get(5..).is_some_and(|text| text.starts_with(b"begin"));
            if (is_executed || begins) && self.statements.hold.swap(false, Ordering::SeqCst) {
                self.statements.deliver.notified().await;
                self.is_delivering.store(true, Ordering::SeqCst);
                self.was_held.store(true, Ordering::SeqCst);
            }
            true
        })
    }

    /// The connection stays until the delayed statement has its response: its client may be gone.
    fn requested(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.was_held.swap(false, Ordering::SeqCst) {
                self.responded.notified().await;
            }
        })
    }

    fn response<'a>(&'a self, _chunk: &'a [u8]) -> BoxFuture<'a, bool> {
        if self.is_delivering.swap(false, Ordering::SeqCst) {
            self.statements.delivered.notify_one();
            self.responded.notify_one();
        }
        let goes_on = !self.statements.swallow.swap(false, Ordering::SeqCst);
        Box::pin(async move { goes_on })
    }
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
