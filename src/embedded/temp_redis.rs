//! A temporary Redis, to be killed or to be one of several, without harm to the shop's.
//!
//! Guarantees that no other user reaches it (a socket in a folder of mode 0700; on 127.0.0.1, where
//! it listens so that another Redis can replicate it, a random password), that it stores nothing,
//! and that it ends with its value. If this process is killed, it ends too (on Linux); its folder,
//! which is empty then, remains.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Child;

use super::process::{NotReady, tied_command, wait_ready};
use super::{programs, redis, sockets};

const START_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct TempRedis {
    /// URL of its socket, in the format of redis-rs.
    pub url: String,
    /// Port on 127.0.0.1, for another Redis that replicates it.
    pub port: u16,
    pub password: String,
    child: Child,
    folder: PathBuf,
}

impl TempRedis {
    /// Starts an empty Redis and waits until it answers. Must be called from the main thread, with
    /// which it ends.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&format!("{:032x}", rand::random::<u128>()), None).await
    }

    /// Starts an empty Redis with this password; with `primary_port`, as a replica of the Redis on
    /// that port of 127.0.0.1, which must have the same password. Otherwise as [`Self::start`].
    pub async fn start_with(password: &str, primary_port: Option<u16>) -> anyhow::Result<Self> {
        let program = programs::redis()?;
        let folder = sockets::create(None)?;
        let socket = sockets::redis(&folder, redis::MAIN);
        // Another process may take the port; then Redis fails to start.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = tied_command(&program, "TERM");
        if let Some(port) = primary_port {
            command.args(["--replicaof", "127.0.0.1", &port.to_string(), "--masterauth", password]);
        }
        let child = command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--requirepass", password])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--repl-diskless-sync-delay", "0", "--unixsocketperm", "700"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("can't start {}", program.display()))?;
        let url = format!("redis+unix://{}?pass={password}", socket.display());
        let mut temp_redis = Self { url, port, password: password.to_owned(), child, folder };
        let probe = || redis::check_ready(&temp_redis.url);
        match wait_ready(START_TIMEOUT, probe, temp_redis.child.wait()).await {
            Ok(()) => Ok(temp_redis),
            Err(NotReady::Exited(status)) => bail!("a temporary Redis ended at once ({})", status?),
            Err(NotReady::TimedOut(last)) => bail!("a temporary Redis does not respond: {last}"),
        }
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        sockets::redis(&self.folder, redis::MAIN)
    }

    pub async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

impl Drop for TempRedis {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        sockets::remove(&self.folder);
    }
}
