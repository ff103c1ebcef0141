//! Finds the processes that a killed `up` left running, by pid and start time, and ends them.
//!
//! Guarantees that only processes that an `up` on this folder started are signalled: a pid that was
//! reused has another start time (or the machine another boot). Does not find a child whose `up`
//! was killed between starting and recording it; on Linux that child ended with its parent
//! (`process.rs`).

use std::cell::RefCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::data_dir::{read_if_exists, write_private};
use super::error::{Error, Result, file};
use super::{print_progress, sockets};

/// Grace period after a signal: Postgres writes a checkpoint.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Prefix of the line of `pids` that names the sockets' folder.
const SOCKETS: &str = "sockets ";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process; its start time distinguishes it from others with the same pid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegisteredChild {
    role: String,
    pid: i32,
    start: String,
}

/// The running children, recorded in the file `pids` of the data folder for the next `up`.
#[derive(Debug)]
pub(super) struct ChildRegistry {
    path: PathBuf,
    sockets: PathBuf,
    children: RefCell<Vec<RegisteredChild>>,
}

impl ChildRegistry {
    /// Records the sockets' folder; call [`terminate_all`] first.
    pub(super) fn new(data: &Path, sockets: &Path) -> Result<Self> {
        let (path, sockets) = (data.join("pids"), sockets.to_owned());
        let registry = Self { path, sockets, children: RefCell::default() };
        registry.write()?;
        Ok(registry)
    }

    /// Records a child that was just started, in place of its predecessor.
    pub(super) fn record_child(&self, role: &str, pid: u32) -> Result<()> {
        let pid = i32::try_from(pid).unwrap_or_default();
        // Without a start time it has exited already, which its supervisor reports.
        let Some(start) = start_of(pid) else { return Ok(()) };
        let child = RegisteredChild { role: role.to_owned(), pid, start };
        self.children.borrow_mut().retain(|other| other.role != role);
        self.children.borrow_mut().push(child);
        self.write()
    }

    pub(super) fn clear(&self) {
        sockets::remove(&self.sockets);
        let _ = fs::remove_file(&self.path);
    }

    fn write(&self) -> Result<()> {
        let mut text = format!("{SOCKETS}{}\n", self.sockets.display());
        for RegisteredChild { role, pid, start } in &*self.children.borrow() {
            text += &format!("{role} {pid} {start}\n");
        }
        write_private(&self.path, &text)
    }
}

/// Ends what the last `up` on this folder left, replicas first, Postgres last; waits for each.
pub(super) async fn terminate_all(data: &Path, cluster: &Path) -> Result<()> {
    let path = data.join("pids");
    let Some(text) = read_if_exists(&path)? else { return Ok(()) };
    // Recorded in the order of starting, so ended in reverse.
    for child in text.lines().rev().filter_map(RegisteredChild::parse) {
        if child.is_alive() {
            let RegisteredChild { role, pid, .. } = &child;
            print_progress(&format!("ending {role} (pid {pid}), left by a killed `up`"));
            child.end().await?;
        }
    }
    if let Some(folder) = text.lines().find_map(|line| line.strip_prefix(SOCKETS)) {
        sockets::remove(Path::new(folder));
    }
    remove_stale_pid_file(cluster);
    let _ = fs::remove_file(data.join("env"));
    fs::remove_file(&path).map_err(file("cannot remove", &path))
}

/// Removes a `postmaster.pid` whose pid belongs to another program: Postgres refuses to start while
/// any process has that pid. A Postgres of this folder has just been ended.
fn remove_stale_pid_file(cluster: &Path) {
    let path = cluster.join("postmaster.pid");
    let pid = fs::read_to_string(&path).ok().and_then(|text| text.lines().next()?.parse().ok());
    let name = pid.and_then(|pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    if name.is_some_and(|name| name.trim() != "postgres") {
        let _ = fs::remove_file(path);
    }
}

impl RegisteredChild {
    /// Parses a line of `pids`; `None` if it names no child.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        let (role, pid, start) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Self { role, pid, start })
    }

    fn is_alive(&self) -> bool {
        start_of(self.pid).is_some_and(|start| start == self.start)
    }

    /// Resumes the process if it is paused, asks it to exit, and kills it after a grace period.
    async fn end(&self) -> Result<()> {
        // On TERM Postgres waits for its clients; INT closes them.
        let polite = if self.role == "postgres" { Signal::INT } else { Signal::TERM };
        for signals in [[Signal::CONT, polite], [Signal::CONT, Signal::KILL]] {
            for signal in signals.into_iter().filter(|_| self.is_alive()) {
                self.signal(signal)?;
            }
            let until = Instant::now() + GRACE_PERIOD;
            while self.is_alive() && Instant::now() < until {
                sleep(POLL_INTERVAL).await;
            }
            if !self.is_alive() {
                return Ok(());
            }
        }
        Err(Error::System {
            what: "a process that a killed `up` left does not end; see `pids` in the data folder",
            source: std::io::Error::from(ErrorKind::TimedOut),
        })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        match Pid::from_raw(self.pid).map(|pid| kill_process(pid, signal)) {
            None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => Ok(()),
            Some(Err(error)) => Err(Error::System {
                what: "cannot end a process that a killed `up` left (was it started as root?)",
                source: error.into(),
            }),
        }
    }
}

/// Returns the start time of a process, unique among those with its pid; `None` if it has exited.
fn start_of(pid: i32) -> Option<String> {
    if cfg!(target_os = "linux") {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let (state, ticks) = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        return (state != 'Z' && state != 'X').then(|| format!("{} {ticks}", boot.trim()));
    }
    let output = std::process::Command::new("ps")
        .args(["-o", "lstart=,ucomm=", "-p", &pid.to_string()])
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// Parses state and start time (field 22) of `/proc/<pid>/stat`; field 2, the name, is arbitrary.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_parsed_after_any_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
    }

    #[test]
    fn line_of_the_pid_file_is_parsed() {
        let child = RegisteredChild { role: "redis".into(), pid: 12, start: "boot 34".into() };
        assert_eq!(RegisteredChild::parse("redis 12 boot 34"), Some(child));
        assert_eq!(RegisteredChild::parse("sockets /tmp/holdfast-1"), None);
    }

    #[test]
    fn reused_pid_is_not_alive() {
        let pid = i32::try_from(std::process::id()).expect("pids are small");
        let start = start_of(pid).expect("we are alive");
        let own = RegisteredChild { role: "us".into(), pid, start };
        assert!(own.is_alive());
        let other = RegisteredChild { start: "another boot 1".into(), ..own };
        assert!(!other.is_alive());
    }
}
