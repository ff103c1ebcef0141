//! The connection to one server, which outlives each of its connections.
//!
//! Guarantees: it is established with the first command, and again after it broke or any attempt
//! failed, with growing pauses: also after the server refused the login, and if it accepts logins
//! and ends its connections at once. (The `ConnectionManager`
//! of redis-rs keeps such a refusal for ever, and a broken connection's error until the second
//! command.) Requests have no timeout: see [`super::request::in_time`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushKind};
use redis::{RedisError, Value};

use super::address::name_missing_socket;
use super::receivers::Receivers;
use super::request::{CONNECT_TIMEOUT, RedisRequest};
use crate::clock::random;
use crate::time::{Instant, sleep};

/// Pause before the second try of an attempt: a server that restarts is often back by then.
const SECOND_TRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a failed attempt; it doubles with each further one.
const MIN_PAUSE: Duration = Duration::from_millis(25);
/// Longest pause: a server that accepts the login again is used as soon.
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// Time after which a connection has worked: if it breaks, it is replaced at once.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// A connection to one server. Cheap to clone; clones share it.
#[derive(Clone)]
pub(super) struct ServerConnection(Arc<SharedConnection>);

struct SharedConnection {
    client: Client,
    /// Those that get the messages of sharded channels.
    receivers: Option<Arc<Receivers>>,
    state: Mutex<ReconnectState>,
}

#[derive(Default)]
struct ReconnectState {
    /// The last attempt; its connection is in use if it succeeded.
    attempt: Option<ConnectAttempt>,
    /// Number of attempts one after another that failed, or whose connection soon broke.
    failures: u32,
    /// The time of the next attempt, until which commands get the error of the last one.
    retry_at: Option<Instant>,
    connected_at: Option<Instant>,
}

/// An attempt to connect, which several commands can wait for.
#[derive(Clone)]
struct ConnectAttempt {
    number: u64,
    connection: Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>>,
}

impl ServerConnection {
    /// RESP3 for its `HELLO`: a missing password fails the connection. Without, Redis closes it at
    /// a command of more than ten arguments, and concurrent commands fail without the reason.
    /// With receivers it is one for subscriptions to sharded channels.
    pub(super) fn new(
        address: ConnectionInfo,
        receivers: Option<Arc<Receivers>>,
    ) -> Result<Self, RedisError> {
        let client = Client::open(with_resp3(address))?;
        Ok(Self(Arc::new(SharedConnection { client, receivers, state: Mutex::default() })))
    }

    pub(super) fn address(&self) -> &ConnectionInfo {
        self.0.client.get_connection_info()
    }

    pub(super) async fn send(&self, request: RedisRequest<'_>) -> Result<Vec<Value>, RedisError> {
        let attempt = self.0.current_attempt();
        let mut connection = attempt.connection.await?;
        let response = request.send_on(&mut connection).await;
        let must_reconnect = match &response {
            Ok(values) => values.iter().any(is_not_logged_in),
            Err(error) => error.is_unrecoverable_error(),
        };
        if must_reconnect {
            self.0.reconnect(attempt.number);
        }
        response
    }
}

impl SharedConnection {
    /// Returns the attempt whose connection is to be used, or whose failure is recent; begins one
    /// if there is none.
    fn current_attempt(self: &Arc<Self>) -> ConnectAttempt {
        let mut state = self.state.lock();
        match &state.attempt {
            Some(attempt) if state.retry_at.is_none_or(|at| Instant::now() < at) => attempt.clone(),
            _ => self.begin_attempt(&mut state),
        }
    }

    /// Replaces the connection of that attempt, unless that was done already.
    fn reconnect(self: &Arc<Self>, broken: u64) {
        let mut state = self.state.lock();
        let is_current = state.attempt.as_ref().is_some_and(|attempt| attempt.number == broken);
        if !is_current || state.retry_at.is_some() {
            return;
        }

        if state.connected_at.is_some_and(|at| at.elapsed() >= MIN_LIFETIME) {
            state.failures = 0;
        }
        if state.failures == 0 {
            // A server that restarts is often back by then.
            state.failures = 1;
            self.begin_attempt(&mut state);
        } else {
            state.record_failure();
        }
    }

    /// Connects in a task of its own, because the commands that wait for it may be dropped.
    fn begin_attempt(self: &Arc<Self>, state: &mut ReconnectState) -> ConnectAttempt {
        let number = state.attempt.as_ref().map_or(0, |last| last.number + 1);
        let server = Arc::downgrade(self);
        let client = self.client.clone();
        let connection = async move {
            let result = connect(&client, config(&server, number)).await;
            if let Some(server) = server.upgrade() {
                server.record(number, result.is_ok());
            }
            result
        };

        let attempt = ConnectAttempt { number, connection: connection.boxed().shared() };
        tokio::spawn(attempt.connection.clone());

        state.retry_at = None;
        // This attempt's connection has not lived yet.
        state.connected_at = None;
        state.attempt = Some(attempt.clone());
        attempt
    }

    fn record(&self, number: u64, succeeded: bool) {
        let mut state = self.state.lock();
        if state.attempt.as_ref().is_none_or(|attempt| attempt.number != number) {
            return;
        }
        if succeeded {
            state.connected_at = Some(Instant::now());
        } else {
            state.record_failure();
        }
    }
}

impl ReconnectState {
    /// Delays the next attempt, by a random part so that many clients do not come at once.
    fn record_failure(&mut self) {
        let pause = MIN_PAUSE.saturating_mul(1 << self.failures.min(10)).min(MAX_PAUSE);
        let pause = pause.mul_f64(random(0.5..1.0));
        self.failures += 1;
        self.retry_at = Some(Instant::now() + pause);
    }
}

/// Returns the settings of a connection that reports its end to `server`.
fn config(server: &Weak<SharedConnection>, number: u64) -> AsyncConnectionConfig {
    let server = server.clone();
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None)
        .set_push_sender(move |push: redis::PushInfo| {
            if let Some(server) = server.upgrade() {
                match (&push.kind, &server.receivers) {
                    (PushKind::Disconnection, _) => server.reconnect(number),
                    (PushKind::SMessage, Some(receivers)) => receivers.receive(&push),
                    _ => {}
                }
            }
            Ok::<(), SendError>(())
        })
}

async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let first = open(client, &config).await;
    if first.is_ok() {
        return first;
    }
    sleep(SECOND_TRY_PAUSE).await;
    let address = client.get_connection_info().addr();
    open(client, &config).await.map_err(|error| name_missing_socket(address, error))
}

async fn open(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    #[cfg(test)]
    if let Some(stream) = super::in_memory::stream() {
        let settings = client.get_connection_info().redis_settings();
        let connecting = MultiplexedConnection::new_with_config(settings, stream, config.clone());
        let (connection, driver) = connecting.await?;
        tokio::spawn(driver);
        return Ok(connection);
    }
    client.get_multiplexed_async_connection_with_config(config).await
}

pub(super) fn with_resp3(address: ConnectionInfo) -> ConnectionInfo {
    let settings = address.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    address.set_redis_settings(settings)
}

/// Returns whether the server demands a login, after this connection was accepted without one.
pub(super) fn is_not_logged_in(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOAUTH")
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use redis::IntoConnectionInfo as _;

    use super::*;

    /// Accepts every login, and then ends the connection. Returns its port, and counts logins.
    fn start_closing_peer(logins: Arc<AtomicU32>) -> std::io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client?;
                let _ = client.read(&mut [0; 1_024])?;
                logins.fetch_add(1, Ordering::SeqCst);
                // The responses to `HELLO 3` and twice `CLIENT SETINFO`.
                client.write_all(b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n+OK\r\n+OK\r\n")?;
            }
            std::io::Result::Ok(())
        });
        Ok(port)
    }

    #[tokio::test]
    async fn peer_that_closes_gets_growing_pauses() {
        let logins = Arc::new(AtomicU32::new(0));
        let port = start_closing_peer(Arc::clone(&logins)).expect("a free port");
        let address = format!("redis://127.0.0.1:{port}").into_connection_info();
        let server = ServerConnection::new(address.expect("an address"), None).expect("a client");
        let (ping, began) = (redis::cmd("PING"), Instant::now());
        while logins.load(Ordering::SeqCst) < 6 {
            let _ = server.send(RedisRequest::Command(&ping)).await;
            tokio::task::yield_now().await;
        }
        // Before the last four: half of 50, 100, 200 and 400 ms, or more.
        assert!(began.elapsed() >= Duration::from_millis(375), "{:?}", began.elapsed());
    }
}
