//! A temporary Redis, to be killed or to be one of several. Its socket is in a folder of mode 0700,
//! and on 127.0.0.1, where another Redis can replicate it, it has a random password. It stores
//! nothing. If this process is killed, it ends, too (on Linux); its folder remains.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::process::{ServerProcess, tied_command};
use super::{programs, redis, sockets};

/// The message of Redis and Valkey before they end.
const PORT_TAKEN: &str = "Failed listening on port";

#[derive(Debug)]
pub struct TempRedis {
    pub url: String,
    /// Port on 127.0.0.1, for another Redis that replicates it.
    pub port: u16,
    pub password: String,
    process: ServerProcess,
    folder: PathBuf,
}

impl TempRedis {
    /// Starts an empty Redis and waits until it answers. Must be called from the main thread, with
    /// which it ends.
    pub async fn start() -> Result<Self> {
        Self::start_with(&format!("{:032x}", rand::random::<u128>()), None).await
    }

    /// Starts an empty Redis with this password; with `primary_port`, as a replica of the Redis on
    /// that port of 127.0.0.1, which must have the same password. Otherwise as [`Self::start`].
    pub async fn start_with(password: &str, primary_port: Option<u16>) -> Result<Self> {
        let free_port = || Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
        Self::start_on(free_port, password, primary_port).await
    }

    /// Starts it on the first port that is still free when Redis listens: in between, another
    /// process may take one.
    async fn start_on(
        mut port: impl FnMut() -> Result<u16>,
        password: &str,
        primary_port: Option<u16>,
    ) -> Result<Self> {
        let program = programs::redis(None).await?;
        loop {
            match Self::start_on_port(&program, port()?, password, primary_port).await {
                Err(error) if error.to_string().contains(PORT_TAKEN) => {}
                started => return started,
            }
        }
    }

    async fn start_on_port(
        program: &Path,
        port: u16,
        password: &str,
        primary_port: Option<u16>,
    ) -> Result<Self> {
        let folder = sockets::create(None)?;
        let socket = sockets::redis(&folder, redis::MAIN);
        let mut command = tied_command(program, "TERM");
        if let Some(port) = primary_port {
            command.args(["--replicaof", "127.0.0.1", &port.to_string(), "--masterauth", password]);
        }

        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--requirepass", password])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--repl-diskless-sync-delay", "0", "--unixsocketperm", "700"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&folder);

        let url = format!("redis+unix://{}?pass={password}", socket.display());
        let process = ServerProcess::start(&mut command, &folder.join("redis.log"))?;
        // Before it is ready, so that it is removed even if that fails.
        let mut server = Self { url, port, password: password.to_owned(), process, folder };
        let Self { process, url, .. } = &mut server;
        process
            .wait_ready("a temporary Redis", redis::START_TIMEOUT, || redis::check_ready(url))
            .await?;
        Ok(server)
    }

    pub fn socket(&self) -> PathBuf {
        sockets::redis(&self.folder, redis::MAIN)
    }

    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.process.child.kill().await?)
    }
}

impl Drop for TempRedis {
    fn drop(&mut self) {
        // Not awaited: it stores nothing that could appear in the folder again.
        let _ = self.process.child.start_kill();
        sockets::remove(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_that_was_taken_meanwhile_is_left() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let taken = [taken.local_addr().expect("its address").port()];
        let free = || Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
        let mut ports = taken.into_iter();
        let started = TempRedis::start_on(|| ports.next().map_or_else(free, Ok), "secret", None);
        let server = started.await.expect("on another port");
        assert_ne!([server.port], taken);
    }
}
