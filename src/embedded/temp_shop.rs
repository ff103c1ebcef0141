//! A temporary shop: a `holdfast up` in a folder of its own.
//!
//! The folder is below `/var/tmp`, which is on disk even where `/tmp` is in memory: the cost of
//! commits is most of what is measured. It is removed at the end. If this process is killed, `up`
//! ends by itself (on Linux) and the folder remains.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use super::data_dir::{RunningUp, read_env};
use super::owned::create_data_folder;
use super::process::{Process, tied_command};
use super::services_dir::remove_data;

/// Timeout of a start, which creates a cluster and starts services and replicas.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of a stop; `up` stops its children within their own limits.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// Range of its ports, below the ephemeral ports.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

#[derive(Debug, Clone)]
pub struct TempShopOptions<'a> {
    /// First part of the name of its folder, before the process id and a random number.
    pub name: &'a str,
    pub replicas: u16,
    /// Number of independent Redis servers for `redlock`.
    pub nodes: u16,
    /// True to run the scheduled jobs, which would distort the measured cost of an order.
    pub jobs: bool,
}

#[derive(Debug)]
pub struct TempShop {
    up: Process,
    folder: PathBuf,
}

impl TempShop {
    /// Starts `up` on free ports of 127.0.0.1, without waiting until it is ready. Must be called
    /// from the main thread, with which it ends.
    pub fn start(options: &TempShopOptions<'_>) -> anyhow::Result<Self> {
        let disk = Path::new("/var/tmp");
        let below = if disk.is_dir() { disk.to_owned() } else { std::env::temp_dir() };
        // New, because it is removed at the end.
        let (name, pid, random) = (options.name, std::process::id(), rand::random::<u64>());
        let folder = below.join(format!("holdfast-{name}-{pid}-{random:016x}"));
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(options.replicas)?));
        let program = std::env::current_exe().context("can't find its own program file")?;
        let mut command = tied_command(&program, "TERM");
        // The settings of the user's own shop do not apply.
        for (name, _) in std::env::vars_os() {
            let ours = name.as_encoded_bytes().starts_with(b"HOLDFAST_");
            if ours && name != "HOLDFAST_PROGRAMS_PATH" {
                command.env_remove(name);
            }
        }
        command
            .args(["up", "--lab", "on", "--redlock", &options.nodes.to_string()])
            .args(["--replicas", &options.replicas.to_string()])
            .args(["--listen", &listen.to_string(), "--data"])
            .arg(&folder)
            // There are no other customers, and a benchmark measures lab items.
            .env("HOLDFAST_LAB_CONNECTIONS", "500")
            .env("HOLDFAST_JOBS", if options.jobs { "on" } else { "off" });
        eprintln!("starting a temporary shop in {} …", folder.display());
        let folder = create_data_folder(&folder)?;
        let up = Process::start(&mut command, &folder.join("up.log"))?;
        Ok(Self { up, folder })
    }

    pub async fn ready(&mut self) -> anyhow::Result<RunningUp> {
        let probe = || std::future::ready(read_env(&self.folder).ok_or_else(String::new));
        self.up.wait_ready("`holdfast up`", START_TIMEOUT, probe).await
    }

    pub async fn stop(mut self) {
        self.up.end(Signal::TERM, STOP_TIMEOUT).await;
        if let Err(error) = remove_data(&self.folder) {
            eprintln!("holdfast: can't remove {}: {error}", self.folder.display());
        }
    }
}

/// Returns the first of `count` consecutive ports that are free now.
fn free_ports(count: u16) -> anyhow::Result<u16> {
    let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    for _ in 0..100 {
        let first = rand::random_range(PORTS.start..PORTS.end - count);
        if (first..first + count).all(free) {
            return Ok(first);
        }
    }
    bail!("no {count} free ports in a row on 127.0.0.1")
}
