//! The one connection to Redis that all locks of a process share.
//!
//! Guarantees: a command is answered or fails within 0.8 s; a connection that broke
//! is made again in the background. A command that timed out *may have been carried out*: whoever
//! sends one that takes something must be ready to give it back.

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    Cmd, FromRedisValue, IntoConnectionInfo as _, Pipeline, RedisError, Script, ScriptInvocation,
};
use tokio::runtime::Handle;

/// `unavailable` must be told within 2 s, so one command gets less than one of them.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(800);
/// A connection to a Redis that is there takes a millisecond.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Unanswered bytes on a connection for so long end it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
}

static DELETE_IF: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("compare_and_delete.lua")));
static RENEW_IF: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("compare_and_renew.lua")));

/// A shared connection, and the runtime on which late releases run. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    connection: ConnectionManager,
    runtime: Handle,
    url: Arc<str>,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// A connection that is made with the first command. Must be called on the main runtime.
    ///
    /// # Errors
    /// When the address can't be read.
    pub fn open(url: &str) -> Result<Self, RedisError> {
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
        // A peer that vanished is noticed by the answers it owes us, not after TCP's quarter hour.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        let client = redis::Client::open(url.into_connection_info()?.set_tcp_settings(tcp))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_millis(250));
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(client, config)?,
            runtime: Handle::current(),
            url: url.into(),
        })
    }

    /// Where it was told Redis is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where what outlives a request runs.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// One command.
    ///
    /// # Errors
    /// When Redis does not answer, or answers with an error.
    ///
    /// # Cancel safety
    /// Dropped before the first poll, nothing is sent. A command that was sent is carried out,
    /// whoever waits for it.
    pub async fn query<T>(&self, command: Cmd) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        self.at_home(async move { command.query_async(&mut connection).await }).await
    }

    /// Several commands in one round trip.
    ///
    /// # Errors
    /// As [`Redis::query`], and as safe to drop.
    pub async fn pipe<T>(&self, commands: Pipeline) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        self.at_home(async move { commands.query_async(&mut connection).await }).await
    }

    /// One script.
    ///
    /// # Errors
    /// As [`Redis::query`], and as safe to drop: a script is carried out whole or not at all.
    pub async fn invoke<T>(&self, call: ScriptInvocation<'static>) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        self.at_home(async move { call.invoke_async(&mut connection).await }).await
    }

    /// A connection that breaks is made again on the runtime of whoever noticed it. That must be
    /// the main one: an HTTP worker's ends with the worker.
    async fn at_home<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RedisError>> + Send + 'static,
    ) -> Result<T, RedisError> {
        if Handle::current().id() == self.runtime.id() {
            return work.await;
        }
        let ended = |_| RedisError::from((redis::ErrorKind::Io, "the runtime has ended"));
        self.runtime.spawn(work).await.map_err(ended)?
    }

    /// Whether Redis answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), RedisError> {
        self.query(redis::cmd("PING")).await
    }

    /// The eviction policy, if the server tells; some managed ones do not.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn eviction_policy(&self) -> Result<Option<String>, RedisError> {
        let command = redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").to_owned();
        let answer: Result<Vec<String>, _> = self.query(command).await;
        match answer {
            Ok(pair) => Ok(pair.into_iter().nth(1)),
            Err(error) if error.kind() == redis::ErrorKind::Io || error.is_timeout() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Deletes `key` if its value is `value`; whether it did. Repeating it is harmless.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn delete_if(&self, key: &str, value: &str) -> Result<bool, RedisError> {
        let mut call = DELETE_IF.prepare_invoke();
        call.key(key).arg(value);
        self.invoke(call).await
    }

    /// Gives `key` the full `ttl` again if its value is `value`; whether it did.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn renew_if(
        &self,
        key: &str,
        value: &str,
        ttl: Duration,
    ) -> Result<bool, RedisError> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let mut call = RENEW_IF.prepare_invoke();
        call.key(key).arg(value).arg(ttl_ms);
        self.invoke(call).await
    }
}

/// The time of day, for people to read in a lock's value. Nothing is decided by it.
#[must_use]
pub(super) fn unix_ms() -> i64 {
    let now = time::OffsetDateTime::now_utc();
    i64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}
