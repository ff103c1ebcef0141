//! The client: commands, pipelines and scripts.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, Script, ScriptInvocation, ServerErrorKind,
};
use tokio::task::JoinHandle;

use super::address::RedisAddress;
use super::background::Background;
use super::cluster::ClusterConnection;
use super::connection::RedisConnection;
use super::error::Error;
use super::outage::Outage;
use super::sentinel::Sentinel;
use super::server::ServerConnection;
use super::tls::TlsSettings;
use crate::clock::ms;
use crate::key::is_lock;
use crate::time::Instant;

/// Keys examined per `SCAN` call.
const SCAN_STEP: usize = 200;
/// The same when keys are deleted, which no request waits for.
const DELETE_STEP: usize = 1_000;
/// Approximate limit of keys per scan; to inspect more, use `redis-cli`.
const SCAN_LIMIT: usize = 1_000;

/// Keys of which one is looked for on each primary of a Cluster.
const MAX_KEYS_TRIED: usize = 1_000;

static DELETE_IF: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../compare_and_delete.lua")));
static RENEW_IF: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../compare_and_renew.lua")));

/// A shared connection, and the runtime of its background tasks. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    pub(super) connection: RedisConnection,
    plain_text_on_network: bool,
    background: Background,
    outage: Outage,
    /// False for releases.
    fails_fast: bool,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// Creates a connection that is established with the first command.
    ///
    /// Renewals and background releases run on the tokio runtime of this call, which must live as
    /// long as the locks. Send commands on the same one: a broken connection is re-established on
    /// the runtime of the caller that noticed it. Guards may be dropped anywhere.
    ///
    /// A `USER:PASSWORD@` before the hosts is for the data servers, not for the sentinels; `/DB`
    /// may follow one host or a master's name. With TLS, the authorities of the system are trusted.
    ///
    /// # Errors
    /// If the address is invalid; the message lists the valid forms.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::open_with_tls(url, &TlsSettings::default())
    }

    /// As [`Redis::open`], with certificates for TLS, which apply to all servers. Fails also if
    /// there are certificates, and the address is one without TLS.
    pub fn open_with_tls(url: &str, settings: &TlsSettings) -> Result<Self, Error> {
        let address = RedisAddress::read(url).and_then(|address| address.with_tls(settings));
        let address = address.map_err(Error::new)?;
        let plain_text_on_network = address.is_plain_text_on_network();

        let background = Background::of_this_runtime();
        let connection = match address {
            RedisAddress::One(address) => {
                RedisConnection::One(ServerConnection::new(address, None).map_err(Error::new)?)
            }
            RedisAddress::Cluster(seeds) => {
                RedisConnection::Cluster(ClusterConnection::new(seeds, background.clone()))
            }
            RedisAddress::Sentinel { sentinels, name, primary } => {
                RedisConnection::Sentinel(Arc::new(Sentinel::new(sentinels, name, primary)))
            }
        };

        Ok(Self {
            connection,
            plain_text_on_network,
            background,
            outage: Outage::default(),
            fails_fast: true,
        })
    }

    /// Returns a connection for releases: their commands are sent even if a response is unlikely,
    /// because a server that stalled executes them later.
    #[doc(hidden)]
    #[must_use]
    pub fn for_release(&self) -> Self {
        Self { fails_fast: false, connection: self.connection.for_release(), ..self.clone() }
    }

    /// Returns whether commands leave this machine without TLS.
    #[must_use]
    pub fn is_plain_text_on_network(&self) -> bool {
        self.plain_text_on_network
    }

    /// Spawns a background task: a renewal, or a release on drop.
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.background.spawn(task)
    }

    /// Returns whether keys are spread over several servers.
    #[doc(hidden)]
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.connection, RedisConnection::Cluster(_))
    }

    /// Sends one command.
    ///
    /// Fails if the server does not respond within 0.8 s, or reports an error; at once, without
    /// sending it, for 0.25 s after another command had no response (in a Cluster: of the same
    /// node, until that responds). Dropped before the first poll, nothing is sent. A command that
    /// was sent is executed.
    pub(crate) async fn send<T>(&self, command: Cmd) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        let mut connection = self.connection.clone();
        self.observe(command.query_async(&mut connection)).await
    }

    /// Sends several commands in one round trip. Fails, and is cancel safe, as [`Redis::send`].
    pub(crate) async fn send_pipeline<T>(&self, commands: Pipeline) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        let mut connection = self.connection.clone();
        self.observe(commands.query_async(&mut connection)).await
    }

    /// Executes a script. Fails, and is cancel safe, as [`Redis::send`].
    pub(crate) async fn send_script<T>(&self, call: ScriptInvocation<'static>) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        let mut connection = self.connection.clone();
        self.observe(call.invoke_async(&mut connection)).await
    }

    /// Executes a script that publishes. Subscribers on the same server, or on the same node of a
    /// Cluster, receive the message before this caller receives the response.
    ///
    /// Redis writes pending responses in LIFO order of their clients (`clients_pending_write` in
    /// its `networking.c`). The caller of a script joins that list at the end of the script, so it
    /// would come before the subscribers and, where processes share a core, delay them by its work
    /// on the response. A preceding `PING` lets it join earlier, so it is served last.
    pub(crate) async fn run_script_after_subscribers<T>(
        &self,
        call: ScriptInvocation<'static>,
    ) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        let mut both = ::redis::pipe();
        both.ping().ignore().invoke_script(&call).ignore_errors();
        let (response,): (Result<T, RedisError>,) = self.send_pipeline(both).await?;
        match response {
            // In a pipeline, redis-rs does not load a script that the server does not know.
            Err(error) if is_retryable(&error) => self.send_script(call).await,
            response => response.map_err(Error::new),
        }
    }

    /// Runs `work`, unless a response is unlikely, and records whether the server responds.
    async fn observe<T>(
        &self,
        work: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Error> {
        if self.fails_fast
            && let Some(failure) = self.outage.recent_failure()
        {
            return Err(failure);
        }

        let sent = Instant::now();
        let result = work.await.map_err(Error::new);
        // A Cluster remembers the outage of each node.
        if !self.is_cluster() {
            self.outage.record(sent, &result);
        }
        result
    }

    /// Returns each server that stores keys: the one server, the sentinels' primary, or all
    /// primaries of a Cluster, whose commands are not redirected.
    async fn primaries(&self) -> Result<Vec<Self>, Error> {
        if let RedisConnection::Cluster(cluster) = &self.connection {
            let primaries = self.observe(cluster.each_primary()).await?;
            let servers = primaries.into_iter().map(|primary| Self {
                connection: RedisConnection::One(primary),
                outage: Outage::default(),
                ..self.clone()
            });
            return Ok(servers.collect());
        }
        Ok(vec![self.clone()])
    }

    /// Returns a key on each server that stores keys, whose name begins with `start`. In a Cluster,
    /// a primary with few slots may be left out.
    pub(crate) async fn key_of_each_primary(&self, start: &str) -> Result<Vec<String>, Error> {
        if let RedisConnection::Cluster(cluster) = &self.connection {
            let keys = (0..MAX_KEYS_TRIED).map(|number| format!("{start}:{{{number}}}"));
            return self.observe(cluster.key_of_each_primary(keys)).await;
        }
        Ok(vec![start.to_owned()])
    }

    /// Returns the eviction policy, if the server reports it; in a Cluster, the worst of all
    /// primaries'. With a policy other than `noeviction`, Redis may delete a lock that is held.
    pub async fn eviction_policy(&self) -> Result<Option<String>, Error> {
        let servers = self.primaries().await?;
        let policies = try_join_all(servers.iter().map(Self::own_eviction_policy)).await?;

        // One that evicts, else an unknown one.
        let worst = policies.into_iter().min_by_key(|policy| match policy.as_deref() {
            Some("noeviction") => 2,
            None => 1,
            Some(_) => 0,
        });
        Ok(worst.flatten())
    }

    async fn own_eviction_policy(&self) -> Result<Option<String>, Error> {
        let command = redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").to_owned();
        match self.send::<HashMap<String, String>>(command).await {
            Ok(settings) => Ok(settings.into_values().next()),
            Err(error) if error.is_unavailable() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns the keys of locks that match `pattern`, of all servers; stops at about
    /// [`SCAN_LIMIT`].
    pub(crate) async fn scan_locks(&self, pattern: &str) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        for server in self.primaries().await? {
            let mut cursor = 0_u64;
            loop {
                let mut command = redis::cmd("SCAN");
                command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_STEP);
                let (next, found): (u64, Vec<String>) = server.send(command).await?;

                keys.extend(found.into_iter().filter(|key| is_lock(key)));
                cursor = next;
                if cursor == 0 || keys.len() >= SCAN_LIMIT {
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Deletes each key whose name begins with `prefix`, on all servers; returns their number.
    /// Looks at all keys, a few at a time, so that other clients do not wait.
    ///
    /// # Errors
    /// Those of Redis; keys may be left then. If the prefix is empty, which is that of every
    /// key; nothing is deleted then.
    #[doc(hidden)]
    pub async fn delete_prefixed(&self, prefix: &str) -> Result<u64, Error> {
        if prefix.is_empty() {
            let error = (ErrorKind::Client, "an empty prefix is that of every key");
            return Err(Error::new(error.into()));
        }

        let pattern = format!("{}*", escape_pattern(prefix));
        let mut deleted = 0;
        for server in self.primaries().await? {
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(DELETE_STEP);
                let (next, keys): (u64, Vec<String>) = server.send(scan).await?;

                if !keys.is_empty() {
                    let mut commands = redis::pipe();
                    for key in &keys {
                        // One by one: keys of several slots can't be named in one command.
                        commands.unlink(key);
                    }
                    let counts: Vec<u64> = server.send_pipeline(commands).await?;
                    deleted += counts.iter().sum::<u64>();
                }

                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(deleted)
    }

    /// Deletes `key` if its value is `value`, in one script; returns whether it did.
    #[doc(hidden)]
    pub async fn delete_if(&self, key: &str, value: &str) -> Result<bool, Error> {
        Ok(self.delete_all_if(&[(key, value)]).await? > 0)
    }

    /// Deletes the keys (of one slot) that have the given values; returns their number.
    pub(crate) async fn delete_all_if(
        &self,
        locks: &[(impl AsRef<str>, impl AsRef<str>)],
    ) -> Result<usize, Error> {
        let mut call = DELETE_IF.prepare_invoke();
        for (key, value) in locks {
            call.key(key.as_ref()).arg(value.as_ref());
        }
        self.send_script(call).await
    }

    /// Sets the expiry of `key` to `ttl` if its value is `value`; returns whether it did.
    pub(crate) async fn renew_if(
        &self,
        key: &str,
        value: &str,
        ttl: Duration,
    ) -> Result<bool, Error> {
        Ok(self.renew_all_if(&[(key, value)], ttl).await? > 0)
    }

    /// Sets the expiry of the keys (of one slot) that have the given values; returns their number.
    pub(crate) async fn renew_all_if(
        &self,
        locks: &[(impl AsRef<str>, impl AsRef<str>)],
        ttl: Duration,
    ) -> Result<usize, Error> {
        let mut call = RENEW_IF.prepare_invoke();
        call.arg(ms(ttl));
        for (key, value) in locks {
            call.key(key.as_ref()).arg(value.as_ref());
        }
        self.send_script(call).await
    }
}

/// Returns the command that creates a lock unless it exists. Its response is null if it does.
pub(crate) fn set_if_absent(key: &str, owner: &str, ttl: Duration) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(owner).arg("NX").arg("PX").arg(ms(ttl));
    command
}

/// Returns whether the command was not executed and is worth repeating.
fn is_retryable(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};

    matches!(error.kind(), ErrorKind::Server(NoScript | Moved | Ask | TryAgain))
}

/// Returns the glob pattern that matches only `text`.
pub(crate) fn escape_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
