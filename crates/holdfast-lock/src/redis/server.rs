//! The connection to one server, which outlives each of its connections.
//!
//! Guarantees: it is established with the first command, and again after it broke or, with growing
//! pauses, after any attempt failed, also if the server refused the login. (The `ConnectionManager`
//! of redis-rs keeps such a refusal for ever, and a broken connection's error until the second
//! command.) Requests have no timeout: see [`super::request::in_time`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rand::RngExt as _;
use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushKind};
use redis::{RedisError, Value};
use tokio::time::{Instant, sleep};

use super::request::{CONNECT_TIMEOUT, RedisRequest};

/// Pause before the second try of an attempt: a server that restarts is often back by then.
const SECOND_TRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a failed attempt; it doubles with each further one.
const MIN_PAUSE: Duration = Duration::from_millis(25);
/// Longest pause: a server that accepts the login again is used as soon.
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// A connection to one server. Cheap to clone; clones share it.
#[derive(Clone)]
pub(super) struct ServerConnection(Arc<Server>);

struct Server {
    client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last attempt; its connection is in use if it succeeded.
    attempt: Option<Attempt>,
    /// Number of attempts one after another that failed.
    failures: u32,
    /// The time from which a command begins the next attempt, if the last one is of no use. Until
    /// then commands get its error.
    retry_at: Option<Instant>,
}

/// An attempt to connect, which several commands can wait for.
#[derive(Clone)]
struct Attempt {
    number: u64,
    connection: Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>>,
}

impl ServerConnection {
    /// RESP3 for its `HELLO`: a missing password fails the connection. Without, Redis closes it at
    /// a command of more than ten arguments, and concurrent commands fail without the reason.
    pub(super) fn new(address: ConnectionInfo) -> Result<Self, RedisError> {
        let client = Client::open(with_resp3(address))?;
        Ok(Self(Arc::new(Server { client, state: Mutex::default() })))
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

impl Server {
    /// Returns the attempt whose connection is to be used, or whose failure is recent; begins one
    /// if there is none.
    fn current_attempt(self: &Arc<Self>) -> Attempt {
        let mut state = self.state.lock();
        match &state.attempt {
            Some(attempt) if state.retry_at.is_none_or(|at| Instant::now() < at) => attempt.clone(),
            _ => self.begin_attempt(&mut state),
        }
    }

    /// Lets the next command replace the connection of that attempt, unless that was done already.
    fn reconnect(&self, broken: u64) {
        let mut state = self.state.lock();
        let is_current = state.attempt.as_ref().is_some_and(|attempt| attempt.number == broken);
        if is_current && state.retry_at.is_none() {
            state.retry_at = Some(Instant::now());
        }
    }

    /// Connects in a task of its own, because the commands that wait for it may be dropped.
    fn begin_attempt(self: &Arc<Self>, state: &mut State) -> Attempt {
        let number = state.attempt.as_ref().map_or(0, |last| last.number + 1);
        let (server, client) = (Arc::downgrade(self), self.client.clone());
        let connection = async move {
            let result = connect(&client, config(&server, number)).await;
            if let Some(server) = server.upgrade() {
                server.record(number, result.is_ok());
            }
            result
        };
        let attempt = Attempt { number, connection: connection.boxed().shared() };
        tokio::spawn(attempt.connection.clone());
        state.retry_at = None;
        state.attempt = Some(attempt.clone());
        attempt
    }

    fn record(&self, number: u64, succeeded: bool) {
        let mut state = self.state.lock();
        if state.attempt.as_ref().is_none_or(|attempt| attempt.number != number) {
            return;
        }
        if succeeded {
            state.failures = 0;
        } else {
            state.record_failure();
        }
    }
}

impl State {
    /// Delays the next attempt, by a random part so that many clients do not come at once.
    fn record_failure(&mut self) {
        let pause = MIN_PAUSE.saturating_mul(1 << self.failures.min(10)).min(MAX_PAUSE);
        let pause = pause.mul_f64(rand::rng().random_range(0.5..=1.0));
        self.failures += 1;
        self.retry_at = Some(Instant::now() + pause);
    }
}

/// Returns the settings of a connection that reports its end to `server`.
fn config(server: &Weak<Server>, number: u64) -> AsyncConnectionConfig {
    let server = server.clone();
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None)
        .set_push_sender(move |push: redis::PushInfo| {
            if push.kind == PushKind::Disconnection
                && let Some(server) = server.upgrade()
            {
                server.reconnect(number);
            }
            Ok::<(), SendError>(())
        })
}

async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let first = client.get_multiplexed_async_connection_with_config(&config).await;
    if first.is_ok() {
        return first;
    }
    sleep(SECOND_TRY_PAUSE).await;
    client.get_multiplexed_async_connection_with_config(&config).await
}

pub(super) fn with_resp3(address: ConnectionInfo) -> ConnectionInfo {
    let settings = address.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    address.set_redis_settings(settings)
}

/// Returns whether the server demands a login, after this connection was accepted without one.
pub(super) fn is_not_logged_in(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOAUTH")
}
