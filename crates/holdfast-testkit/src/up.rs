//! A whole `holdfast up`, for tests of what it alone can do.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use holdfast_services::{RunningUp, read_env};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::ports::free_ports;
use crate::program;

/// Two replicas with all they need, in a temporary folder; ended with the value.
pub struct Up {
    child: Child,
    pub running: RunningUp,
    folder: Option<TempDir>,
}

impl Up {
    pub fn start(more: &[&str]) -> Self {
        Self::start_in(data_folder("holdfast-up-"), more)
    }

    /// Starts it on the data of an earlier one.
    pub fn start_in(folder: TempDir, more: &[&str]) -> Self {
        let mut child = Command::new(program())
            .args(["up", "--listen", &format!("127.0.0.1:{}", free_ports(2)), "--data"])
            .arg(folder.path())
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.contains("ready"), "up did not start: {ready:?}");
        let running = read_env(folder.path()).expect("a ready up has an env file");
        Self { child, running, folder: Some(folder) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn data(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().to_owned()
    }

    /// Every child's role and process.
    pub fn children(&self) -> Vec<(String, i32)> {
        let pids = std::fs::read_to_string(self.data().join("pids")).unwrap();
        let child = |line: &str| {
            let mut fields = line.split(' ');
            Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
        };
        pids.lines().filter_map(child).collect()
    }

    /// Stops it with SIGTERM, and keeps its data.
    pub fn stop(mut self) -> TempDir {
        self.terminate();
        assert!(self.child.wait().unwrap().success(), "it stops cleanly");
        self.folder.take().unwrap()
    }

    fn terminate(&self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        let _ = kill_process(pid, Signal::TERM);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.terminate();
            let _ = self.child.wait();
        }
    }
}

/// A new folder that the services' user can traverse if root runs them: otherwise they would keep
/// their data elsewhere, which would outlive the test.
pub fn data_folder(prefix: &str) -> TempDir {
    let permissions = Permissions::from_mode(0o711);
    tempfile::Builder::new().prefix(prefix).permissions(permissions).tempdir().unwrap()
}

/// The letter of a process's state, if it runs (Linux only).
pub fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| *state != 'Z')
}
