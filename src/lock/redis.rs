//! The one connection to Redis that all locks of a process share.
//!
//! Guarantees: a command is answered or fails within [`RESPONSE_TIMEOUT`]; a connection that broke
//! is made again in the background. A command that timed out *may have been carried out*: whoever
//! sends one that takes something must be ready to give it back.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Script;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::runtime::Handle;

/// `unavailable` must be told within 2 s, so one command gets less than one of them.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(800);
/// A connection to a Redis that is there takes a millisecond.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

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
    /// A connection that is made with the first command. Must be called on the main runtime: a
    /// worker's would end with the worker.
    ///
    /// # Errors
    /// When the address can't be read.
    pub fn open(url: &str) -> Result<Self, redis::RedisError> {
        let client = redis::Client::open(url)?;
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

    /// The shared connection.
    #[must_use]
    pub fn connection(&self) -> ConnectionManager {
        self.connection.clone()
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

    /// Whether Redis answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), redis::RedisError> {
        redis::cmd("PING").query_async(&mut self.connection()).await
    }

    /// The eviction policy, if the server tells; some managed ones do not.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn eviction_policy(&self) -> Result<Option<String>, redis::RedisError> {
        let answer: Result<Vec<String>, _> = redis::cmd("CONFIG")
            .arg("GET")
            .arg("maxmemory-policy")
            .query_async(&mut self.connection())
            .await;
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
    pub async fn delete_if(&self, key: &str, value: &str) -> Result<bool, redis::RedisError> {
        DELETE_IF.key(key).arg(value).invoke_async(&mut self.connection()).await
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
    ) -> Result<bool, redis::RedisError> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        RENEW_IF.key(key).arg(value).arg(ttl_ms).invoke_async(&mut self.connection()).await
    }
}

/// The time of day, for people to read in a lock's value. Nothing is decided by it.
#[must_use]
pub(super) fn unix_ms() -> i64 {
    let now = time::OffsetDateTime::now_utc();
    i64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}
