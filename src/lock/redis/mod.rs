//! The connection to Redis that all locks of a process share: to one server, a Cluster, or the
//! current primary behind sentinels.
//!
//! Guarantees: a command succeeds or fails within 0.8 s; a broken connection is re-established in
//! the background. A command is sent once, unless the server replied that it did not execute it. A
//! command that timed out *may have been executed*: a caller that acquires something must be
//! prepared to release it.
//!
//! Tests: `tests/lock/shapes.rs`, `tests/lock/faults.rs`.

mod address;
mod cluster;
mod connection;
mod sentinel;
mod slots;
mod subscription;

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::{select_ok, try_join_all};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, Pipeline, RedisError, Script,
    ScriptInvocation, ServerErrorKind,
};
use tokio::runtime::Handle;

use address::Address;
pub use address::SHAPES;
use connection::Connection;
pub(in crate::lock) use slots::hash_tag;

/// Timeout of a command. `unavailable` must be reported within 2 s, so it is less than 1 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(800);
/// Timeout of a connection attempt; a reachable Redis accepts within about 1 ms.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Keys examined per `SCAN` call.
const SCAN_STEP: usize = 200;

/// Time after which unacknowledged bytes end a connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
}

fn tcp_settings() -> TcpSettings {
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
    // Detects a vanished peer by missing acknowledgements, not after TCP's default of 15 minutes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    tcp
}

/// Creates a connection to one server, established with the first command and again after it
/// breaks.
fn manager(place: ConnectionInfo) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(250));
    ConnectionManager::new_lazy_with_config(Client::open(place)?, config)
}

static DELETE_IF: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../compare_and_delete.lua")));
static RENEW_IF: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../compare_and_renew.lua")));

/// A shared connection, and the runtime for background releases. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    /// Connection settings, if it is one server.
    place: Arc<Option<ConnectionInfo>>,
    runtime: Handle,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// Creates a connection that is established with the first command. Must be called on the main
    /// runtime.
    ///
    /// The address has one of the forms of [`SHAPES`]. A `USER:PASSWORD@` before the hosts is for
    /// the data servers, not for the sentinels; `/DB` may follow one host or a master's name.
    pub fn open(url: &str) -> Result<Self, RedisError> {
        let (connection, place) = match Address::read(url)? {
            Address::One(place) => (Connection::One(manager(place.clone())?), Some(place)),
            Address::Cluster(seeds) => (Connection::Cluster(cluster::Routed::new(seeds)), None),
            Address::Sentinel { sentinels, name, primary } => {
                let sentinel = sentinel::Sentinel::new(sentinels, name, primary);
                (Connection::Sentinel(Arc::new(sentinel)), None)
            }
        };
        Ok(Self { connection, place: Arc::new(place), runtime: Handle::current() })
    }

    /// Returns the runtime for tasks that outlive a request.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns whether keys are spread over several servers, so that a script is limited to one
    /// slot.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.connection, Connection::Cluster(_))
    }

    /// Sends one command.
    ///
    /// # Cancel safety
    /// Dropped before the first poll, nothing is sent. A command that was sent is executed.
    pub async fn query<T>(&self, command: Cmd) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        self.at_home(async move { command.query_async(&mut connection).await }).await
    }

    /// Sends several commands in one round trip.
    ///
    /// # Errors
    /// As [`Redis::query`]; the same holds for cancel safety.
    pub async fn pipe<T>(&self, commands: Pipeline) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        self.at_home(async move { commands.query_async(&mut connection).await }).await
    }

    /// Executes a script.
    ///
    /// # Errors
    /// As [`Redis::query`]; the same holds for cancel safety: a script executes completely or not
    /// at all.
    pub async fn invoke<T>(&self, call: ScriptInvocation<'static>) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        self.at_home(async move { call.invoke_async(&mut connection).await }).await
    }

    /// Executes a script that publishes. Subscribers on the same server, or on the same node of a
    /// Cluster, receive the message before this caller receives the response.
    ///
    /// Redis writes pending replies in LIFO order of their clients (`clients_pending_write` in its
    /// `networking.c`). The caller of a script joins that list at the end of the script, so it
    /// would come before the subscribers and, where processes share a core, delay them by its work
    /// on the response. A preceding `PING` lets it join earlier, so it is served last.
    ///
    /// # Errors
    /// As [`Redis::query`]; the same holds for cancel safety: a script executes completely or not
    /// at all.
    pub async fn invoke_hearers_first<T>(
        &self,
        call: ScriptInvocation<'static>,
    ) -> Result<T, RedisError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut both = ::redis::pipe();
        both.ping().ignore().invoke_script(&call).ignore_errors();
        let (answer,): (Result<T, RedisError>,) = self.pipe(both).await?;
        match answer {
            Err(error) if is_to_be_said_again(&error) => self.invoke(call).await,
            answer => answer,
        }
    }

    /// Runs `work` on the main runtime: a broken connection is re-established on the runtime of the
    /// caller that noticed it, and the runtime of an HTTP worker ends with the worker.
    async fn at_home<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RedisError>> + Send + 'static,
    ) -> Result<T, RedisError> {
        if Handle::current().id() == self.runtime.id() {
            return work.await;
        }
        let ended = |_| RedisError::from((ErrorKind::Io, "the runtime has ended"));
        self.runtime.spawn(work).await.map_err(ended)?
    }

    /// Returns each server that stores keys: the one server, the sentinels' primary, or all
    /// primaries of a Cluster.
    ///
    /// A command to one primary of a Cluster is not redirected: for a key that another node owns it
    /// returns `MOVED` or `ASK` as an error.
    pub async fn each(&self) -> Result<Vec<Self>, RedisError> {
        let Connection::Cluster(routed) = self.connection.clone() else {
            return Ok(vec![self.clone()]);
        };
        let primaries = self.at_home(async move { routed.each_primary().await }).await?;
        let only = |primary| Self { connection: Connection::One(primary), ..self.clone() };
        Ok(primaries.into_iter().map(only).collect())
    }

    /// Checks that Redis responds; in a Cluster, that one primary does.
    pub async fn ping(&self) -> Result<(), RedisError> {
        let servers = self.each().await?;
        let pings = servers.iter().map(|server| Box::pin(server.query(redis::cmd("PING"))));
        select_ok(pings).await.map(|(answer, _)| answer)
    }

    /// Returns the eviction policy, if the server reports it; in a Cluster, the worst of all
    /// primaries'.
    pub async fn eviction_policy(&self) -> Result<Option<String>, RedisError> {
        let servers = self.each().await?;
        let policies = try_join_all(servers.iter().map(Self::its_eviction_policy)).await?;
        let harmless = |policy: &Option<String>| policy.as_deref() == Some("noeviction");
        let worst = |policy: &Option<String>| (harmless(policy), policy.is_none());
        Ok(policies.into_iter().min_by_key(worst).flatten())
    }

    async fn its_eviction_policy(&self) -> Result<Option<String>, RedisError> {
        let command = redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").to_owned();
        let answer: Result<Vec<String>, _> = self.query(command).await;
        match answer {
            Ok(pair) => Ok(pair.into_iter().nth(1)),
            Err(error) if error.kind() == redis::ErrorKind::Io || error.is_timeout() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns the keys that match `pattern` and `wanted`, of all servers; stops at about `most`.
    pub async fn scan(
        &self,
        pattern: &str,
        wanted: fn(&str) -> bool,
        most: usize,
    ) -> Result<Vec<String>, RedisError> {
        let mut keys = Vec::new();
        for server in self.each().await? {
            let mut cursor = 0_u64;
            loop {
                let mut command = redis::cmd("SCAN");
                command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_STEP);
                let (next, found): (u64, Vec<String>) = server.query(command).await?;
                keys.extend(found.into_iter().filter(|key| wanted(key)));
                cursor = next;
                if cursor == 0 || keys.len() >= most {
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Deletes `key` if its value is `value`; returns whether it did. Safe to repeat.
    pub async fn delete_if(&self, key: &str, value: &str) -> Result<bool, RedisError> {
        Ok(self.delete_all_if(&[(key, value)]).await? > 0)
    }

    /// Deletes the keys (of one slot) that have the given values, in one script; returns their
    /// number.
    pub async fn delete_all_if(
        &self,
        locks: &[(impl AsRef<str>, impl AsRef<str>)],
    ) -> Result<usize, RedisError> {
        let mut call = DELETE_IF.prepare_invoke();
        for (key, value) in locks {
            call.key(key.as_ref()).arg(value.as_ref());
        }
        self.invoke(call).await
    }

    /// Sets the expiry of `key` to `ttl` if its value is `value`; returns whether it did.
    pub async fn renew_if(
        &self,
        key: &str,
        value: &str,
        ttl: Duration,
    ) -> Result<bool, RedisError> {
        Ok(self.renew_all_if(&[(key, value)], ttl).await? > 0)
    }

    /// Sets the expiry of the keys that have the given values, in one script; returns their number.
    /// In a Cluster they must share a slot.
    pub async fn renew_all_if(
        &self,
        locks: &[(impl AsRef<str>, impl AsRef<str>)],
        ttl: Duration,
    ) -> Result<usize, RedisError> {
        let mut call = RENEW_IF.prepare_invoke();
        call.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        for (key, value) in locks {
            call.key(key.as_ref()).arg(value.as_ref());
        }
        self.invoke(call).await
    }
}

/// Returns whether the command was not executed and is worth repeating: with the script, to another
/// server, or later.
fn is_to_be_said_again(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};

    matches!(error.kind(), ErrorKind::Server(NoScript | Moved | Ask | TryAgain))
}

/// Returns the wall-clock time, for display in a lock's value. No decision depends on it.
#[must_use]
pub(super) fn unix_ms() -> i64 {
    let now = time::OffsetDateTime::now_utc();
    i64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}
