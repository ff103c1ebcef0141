//! The private Redis (or Valkey): on a socket, no password, no network. It never evicts a key (an
//! evicted lock is a lost lock), and a crash loses at most the last second.

use std::path::Path;
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, Client, RedisError, cmd};
use anyhow::Result;
use rustix::process::Signal;

use super::process::ChildSpec;
use super::services_dir::ServicesDir;
use super::sockets;

pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// To flush the append-only file.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

pub(super) const MAIN: &str = "redis";

/// Returns the name of a quorum's node; numbers start at 1.
pub(super) fn node(number: u16) -> String {
    format!("redlock-{number}")
}

pub(super) fn url(folder: &Path, name: &str) -> String {
    format!("redis+unix://{}", sockets::redis(folder, name).display())
}

pub(super) fn spec(
    program: &Path,
    services_dir: &ServicesDir,
    sockets: &Path,
    role: &str,
) -> Result<ChildSpec> {
    let mut command = services_dir.command(program, "TERM")?;
    command
        .arg("--unixsocket")
        .arg(sockets::redis(sockets, role))
        .arg("--dir")
        .arg(services_dir.path.join(role))
        .args(["--port", "0", "--unixsocketperm", "700", "--daemonize", "no"])
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"])
        .args(["--maxmemory-policy", "noeviction", "--loglevel", "notice", "--logfile", ""]);

    let name = if role == MAIN { "Redis".to_owned() } else { format!("Redis {role}") };
    Ok(ChildSpec {
        name,
        role: role.to_owned(),
        program: program.to_owned(),
        command,
        signal: Signal::TERM,
        grace_period: GRACE_PERIOD,
        escalation: Signal::KILL,
    })
}

pub(super) async fn check_ready(url: &str) -> Result<(), String> {
    // A command: while Redis reads its file, it accepts connections and refuses these.
    let ping = async {
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ATTEMPT_TIMEOUT))
            .set_response_timeout(Some(ATTEMPT_TIMEOUT));
        let client = Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&limits).await?;
        cmd("PING").exec_async(&mut connection).await
    };
    ping.await.map_err(|error: RedisError| error.to_string())
}
