//! A temporary shop: a `holdfast up` in a folder of its own below `/var/tmp`, which is on disk even
//! where `/tmp` is in memory: the cost of commits is most of what is measured. If this process is
//! killed, `up` ends by itself (on Linux) and the folder remains.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use rustix::process::{Signal, geteuid};
use tokio::process::Command;

use super::data_dir::{RunningUp, read_env};
use super::owned::{create_data_folder, create_new_folder};
use super::ports::free_ports;
use super::process::{ServerProcess, own_program, tied_command};
use holdfast_base::output::{print_progress, report_failure};

const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of a stop; `up` stops its children within their own limits.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// Not TMPDIR: below a folder that is closed to Postgres' user, `up` has its data elsewhere.
const PARENTS: [&str; 2] = ["/var/tmp", "/tmp"];
/// As many as a pool can have.
pub(super) const ALL_CONNECTIONS: &str = "500";

#[derive(Debug)]
pub struct TempShop {
    up: ServerProcess,
    folder: PathBuf,
}

impl TempShop {
    /// Starts `up` on free ports of 127.0.0.1, with these replicas and nodes for `redlock`, without
    /// waiting until it is ready. Must be called from the main thread, with which it ends.
    /// Scheduled `jobs` would distort the cost of an order. `name` is part of that of its folder.
    pub fn start(name: &str, replicas: u16, nodes: u16, jobs: bool) -> anyhow::Result<Self> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(replicas)?));

        let program = own_program()?;
        // New, because it is removed at the end.
        let pid = std::process::id();
        let folder = format!("holdfast-{name}-{pid}-{:016x}", rand::random::<u64>());
        let folder = create_in(&PARENTS, &folder)?;
        print_progress(&format!("starting a temporary shop in {} …", folder.display()));

        let mut command = tied_command(&program, "TERM");
        remove_settings(&mut command);
        command
            .args(["up", "--lab", "on", "--redlock", &nodes.to_string()])
            .args(["--replicas", &replicas.to_string()])
            .args(["--listen", &listen.to_string(), "--data"])
            .arg(&folder)
            // There are no other customers, and a benchmark measures lab items.
            .env("HOLDFAST_LAB_CONNECTIONS", ALL_CONNECTIONS)
            .env("HOLDFAST_JOBS", if jobs { "on" } else { "off" });

        let up = ServerProcess::start(&mut command, &folder.join("up.log"))
            .inspect_err(|_| drop(std::fs::remove_dir_all(&folder)))?;
        Ok(Self { up, folder })
    }

    pub async fn ready(&mut self) -> anyhow::Result<RunningUp> {
        self.up
            .wait_ready("`holdfast up`", START_TIMEOUT, async || {
                read_env(&self.folder).ok_or_else(String::new)
            })
            .await
    }

    /// Returns the pid of `up`; `None` once it has ended.
    pub fn pid(&self) -> Option<i32> {
        self.up.child.id()?.try_into().ok()
    }

    pub async fn stop(mut self) {
        self.up.end(Signal::TERM, STOP_TIMEOUT).await;
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            report_failure(&format!("can't remove {}: {error}", self.folder.display()));
        }
    }
}

/// Makes a folder of that name in the first of the parents that permits it.
fn create_in(parents: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    // Postgres' user must be able to traverse it.
    let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
    let mut failure = String::new();

    for parent in parents {
        let folder = Path::new(parent).join(name);
        if let Err(error) = create_new_folder(&folder, mode) {
            failure += &format!(" {}: {error}.", folder.display());
            continue;
        }
        return create_data_folder(&folder).inspect_err(|_| drop(std::fs::remove_dir(&folder)));
    }
    bail!("cannot make a temporary folder.{failure} Make one of them writable, and try again")
}

/// The settings of the user's own shop do not apply to a temporary one.
pub(super) fn remove_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let ours = name.as_encoded_bytes().starts_with(b"HOLDFAST_");
        if ours && name != "HOLDFAST_PROGRAMS_PATH" {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shop_without_var_tmp_is_in_tmp() {
        let name = format!("holdfast-parents-{}", std::process::id());
        // Not even root can make a folder in `/proc`.
        for unusable in ["/nonexistent", "/proc"] {
            let folder = create_in(&[unusable, "/tmp"], &name).expect("one of them permits it");
            assert_eq!(folder, Path::new("/tmp").join(&name));
            std::fs::remove_dir(folder).expect("it is empty");
        }

        let error = create_in(&["/proc"], &name).expect_err("it is not permitted").to_string();
        assert!(error.contains("/proc/holdfast-parents") && !error.contains("--data"), "{error}");
    }
}
