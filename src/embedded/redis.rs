//! The private Redis (or Valkey): on a socket, no password, no network, an append-only file.
//!
//! Guarantees that it never evicts a key (an evicted lock is a lost lock) and that a crash loses at
//! most the last second. So nothing that matters may be stored in Redis only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, Client, RedisResult};

use super::data_dir::ServicesDir;
use super::sockets;
use super::spawner::{ChildEnvironment, ChildSpec, ShutdownPolicy};

/// Timeout of a start, which reads the append-only file.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a connection attempt, and of a response.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Grace period to flush the append-only file.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Name of the shop's Redis.
pub(super) const MAIN: &str = "redis";

/// Returns the name of a quorum's node; numbers start at 1.
pub(super) fn node(number: u16) -> String {
    format!("redlock-{number}")
}

/// Returns the URL of a Redis, in the format of redis-rs.
pub(super) fn url(folder: &Path, name: &str) -> String {
    format!("redis+unix://{}", sockets::redis(folder, name).display())
}

pub(super) fn spec(
    program: &Path,
    services_dir: &ServicesDir,
    folder: &Path,
    name: &str,
    log: PathBuf,
) -> ChildSpec {
    let (socket, data) = (sockets::redis(folder, name), services_dir.path.join(name));
    let mut args = vec!["--unixsocket".into(), socket.into(), "--dir".into(), data.into()];
    let settings = [
        ["--port", "0"],
        ["--unixsocketperm", "700"],
        ["--daemonize", "no"],
        ["--save", ""],
        ["--appendonly", "yes"],
        ["--appendfsync", "everysec"],
        ["--maxmemory-policy", "noeviction"],
        ["--loglevel", "notice"],
        ["--logfile", ""],
    ];
    args.extend(settings.as_flattened().iter().map(Into::into));
    ChildSpec {
        name: if name == MAIN { "Redis".to_owned() } else { format!("Redis {name}") },
        role: name.to_owned(),
        program: program.to_owned(),
        args,
        environment: ChildEnvironment::Minimal,
        account: services_dir.account.clone(),
        log,
        shutdown: ShutdownPolicy::terminate(GRACE_PERIOD),
    }
}

/// Checks that it answers and has loaded its data.
pub(super) async fn check_ready(folder: &Path, name: &str) -> Result<(), String> {
    ping(&url(folder, name)).await.map_err(|error| error.to_string())
}

pub(super) async fn ping(url: &str) -> RedisResult<()> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ATTEMPT_TIMEOUT))
        .set_response_timeout(Some(ATTEMPT_TIMEOUT));
    let client = Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&limits).await?;
    ::redis::cmd("PING").query_async(&mut connection).await
}
