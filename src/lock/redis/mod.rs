//! The one way to Redis that all locks of a process share: to one server, to a Cluster, or to
//! whoever is the primary now.
//!
//! Guarantees: a command is answered or fails within 0.8 s; a connection that broke
//! is made again in the background. A command that timed out *may have been carried out*: whoever
//! sends one that takes something must be ready to give it back. A command is sent once, unless the
//! server that got it said that it did not carry it out.

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

/// `unavailable` must be told within 2 s, so one command gets less than one of them.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(800);
/// A connection to a Redis that is there takes a millisecond.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Keys looked at per `SCAN` step.
const SCAN_STEP: usize = 200;

/// Unanswered bytes on a connection for so long end it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
}

fn tcp_settings() -> TcpSettings {
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
    // A peer that vanished is noticed by the answers it owes us, not after TCP's quarter hour.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    tcp
}

/// A connection to one server, made with the first command and again when it breaks.
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

/// A shared connection, and the runtime on which late releases run. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    /// The one server, if it is one.
    place: Arc<Option<ConnectionInfo>>,
    runtime: Handle,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// A connection that is made with the first command. Must be called on the main runtime.
    ///
    /// The address is one of [`SHAPES`]. A `USER:PASSWORD@` before the hosts is for the servers
    /// that keep the data, not for the sentinels; `/DB` may follow one host or a master's name.
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

    /// Where what outlives a request runs.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Whether keys lie on several servers, so that a script can't have any two of them.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.connection, Connection::Cluster(_))
    }

    /// One command.
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

    /// One script that publishes: whoever hears it is served before this caller gets the answer,
    /// where there is one server, or one node of a Cluster, between them.
    ///
    /// Redis serves those whom it owes something last come, first served (`clients_pending_write`
    /// in its `networking.c`). A caller is owed the answer when the script has ended, so it would
    /// come before those to whom the script published, and keep them waiting for all that it does
    /// with the answer where processes share a core. It is owed the answer to a `PING` first.
    ///
    /// # Errors
    /// As [`Redis::query`], and as safe to drop: a script is carried out whole or not at all.
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

    /// A connection that breaks is made again on the runtime of whoever noticed it. That must be
    /// the main one: an HTTP worker's ends with the worker.
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

    /// Each server that keeps keys: the one, the sentinels' primary, or all primaries of a Cluster.
    ///
    /// What is said to one of a Cluster's primaries stays with it: for a key that is elsewhere, or
    /// has moved meanwhile, it answers with `MOVED` or `ASK`, and that is an error here.
    pub async fn each(&self) -> Result<Vec<Self>, RedisError> {
        let Connection::Cluster(routed) = self.connection.clone() else {
            return Ok(vec![self.clone()]);
        };
        let primaries = self.at_home(async move { routed.each_primary().await }).await?;
        let only = |primary| Self { connection: Connection::One(primary), ..self.clone() };
        Ok(primaries.into_iter().map(only).collect())
    }

    /// Whether Redis answers; of a Cluster, one primary is enough.
    pub async fn ping(&self) -> Result<(), RedisError> {
        let servers = self.each().await?;
        let pings = servers.iter().map(|server| Box::pin(server.query(redis::cmd("PING"))));
        select_ok(pings).await.map(|(answer, _)| answer)
    }

    /// The eviction policy, if the server reports it; of a Cluster, the worst of all primaries'.
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

    /// The keys like `pattern` that are `wanted`, on every server; about `most` of them at most.
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

    /// Deletes `key` if its value is `value`; returns whether it did. Repeating it is harmless.
    pub async fn delete_if(&self, key: &str, value: &str) -> Result<bool, RedisError> {
        Ok(self.delete_all_if(&[(key, value)]).await? > 0)
    }

    /// Deletes the keys (of one slot) that have these values, in one script; returns how many.
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

    /// Sets the expiry of the keys that have the given values, in one script; returns how many. In
    /// a Cluster they must share a slot.
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

/// Whether it was not carried out, and will be: with the script, by another server, or later.
fn is_to_be_said_again(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};

    matches!(error.kind(), ErrorKind::Server(NoScript | Moved | Ask | TryAgain))
}

/// The time of day, for people to read in a lock's value. Nothing is decided by it.
#[must_use]
pub(super) fn unix_ms() -> i64 {
    let now = time::OffsetDateTime::now_utc();
    i64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}
