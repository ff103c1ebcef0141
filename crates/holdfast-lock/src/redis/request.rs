//! Requests to one server, with their timeouts and the settings of their connections.

use std::io;
use std::pin::pin;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::time::{Instant, timeout, timeout_at};

/// Timeout of a command; a Redis that is not overloaded responds within a few milliseconds. An
/// acquisition may take two calls, so that its caller learns of an outage within two seconds.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_millis(800);
/// Lateness of a timeout from which this process was probably stopped, or had no core.
const STALL_THRESHOLD: Duration = Duration::from_millis(10);
/// Time to read a response that arrived while this process was stopped.
const LAST_READ_TIMEOUT: Duration = Duration::from_millis(100);
/// Timeout of a connection attempt; a reachable Redis accepts within about 1 ms.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time after which unacknowledged bytes end a connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
}

pub(super) fn tcp_settings() -> TcpSettings {
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
    // Detects a vanished peer by missing acknowledgements, not after TCP's default of 15 minutes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    tcp
}

/// One command, or several in one round trip.
#[derive(Clone, Copy)]
pub(super) enum RedisRequest<'a> {
    Command(&'a Cmd),
    /// The commands, the number of leading responses to skip, and the number to return.
    Pipe(&'a Pipeline, usize, usize),
}

impl RedisRequest<'_> {
    pub(super) async fn send_on(
        self,
        connection: &mut impl ConnectionLike,
    ) -> Result<Vec<Value>, RedisError> {
        match self {
            RedisRequest::Command(command) => {
                Ok(vec![connection.req_packed_command(command).await?])
            }
            RedisRequest::Pipe(pipe, offset, count) => {
                connection.req_packed_commands(pipe, offset, count).await
            }
        }
    }
}

/// Waits for a response. If the timeout fires late, what has arrived is still read.
pub(super) async fn in_time<T>(
    response: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let mut response = pin!(response);
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    let in_time = timeout_at(deadline, response.as_mut()).await;
    let response = match in_time {
        Err(_) if deadline.elapsed() >= STALL_THRESHOLD => {
            timeout(LAST_READ_TIMEOUT, response).await
        }
        in_time => in_time,
    };
    response.unwrap_or_else(|_| Err(timed_out()))
}

pub(super) fn timed_out() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "no response in time").into()
}
