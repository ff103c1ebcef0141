//! Server programs that end with the test, even if it is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// A process in a folder of its own, which is removed with it. The shell in between sees its
/// standard input close when the value is dropped, and when this process ends.
pub struct Daemon {
    pub folder: PathBuf,
    command: Vec<String>,
    shell: Child,
    pid: Pid,
}

impl Daemon {
    /// Starts `program` with the arguments that `arguments` returns for a new folder.
    pub fn start(program: &Path, arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        // In memory, where the system has such a folder: a node of a Cluster syncs its
        // configuration while its clients wait, for up to 0.6 s on a busy disk.
        let parent = Some(PathBuf::from("/dev/shm")).filter(|memory| memory.is_dir());
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("hl-").tempdir_in(parent).unwrap().keep();
        let mut command = vec![program.to_str().unwrap().to_owned()];
        command.extend(arguments(&folder));
        let (shell, pid) = spawn(&folder, &command);
        Self { folder, command, shell, pid }
    }

    /// SIGKILL. The folder stays, so that it can be started again.
    pub fn kill(&mut self) {
        if let Some(mut input) = self.shell.stdin.take() {
            input.write_all(b"keep\n").unwrap();
        }
        self.shell.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.kill();
        (self.shell, self.pid) = spawn(&self.folder, &self.command);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(folder: &Path, command: &[String]) -> (Child, Pid) {
    let script = "folder=$1; shift; \"$@\" >\"$folder/log\" 2>&1 </dev/null & echo $!; \
                  read -r word; kill -KILL $! 2>/dev/null; wait $!; \
                  [ \"$word\" = keep ] || rm -rf \"$folder\"";
    let mut shell = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(folder)
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    (shell, Pid::from_raw(pid.trim().parse().unwrap()).unwrap())
}

/// Below the ephemeral ports, which any connection may get, and those of the testkit's shops.
const PORTS: Range<u32> = 10_000..20_000;

/// `N` ports that are free, and that this process has not returned before: a port is free until its
/// daemon listens, and two daemons on one port would make one cluster of two.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at the same time begin far from each other.
    let first = std::process::id().wrapping_mul(7_919);

    [(); N].map(|()| {
        let mut candidates = std::iter::repeat_with(|| {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let at = first.wrapping_add(count) % (PORTS.end - PORTS.start);
            u16::try_from(PORTS.start + at).unwrap()
        });
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        candidates.find(is_free).unwrap()
    })
}

/// The program of that name on the PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[test]
fn no_port_is_given_twice() {
    let ports = std::iter::repeat_with(free_ports::<5>).take(400).flatten();
    let different: std::collections::BTreeSet<u16> = ports.collect();
    assert_eq!(different.len(), 2_000);
}
