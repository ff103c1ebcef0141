//! Starts children, each in a process group of its own, on Linux not to outlive `up`.
//!
//! Guarantees that `^C` on the terminal reaches `up` alone, which then stops its children in order,
//! and that a child's output goes to its log. On Linux (with `setpriv`) a child receives a signal
//! when `up` dies, however it dies; elsewhere the next `up` ends it (`orphans.rs`).
//!
//! Linux sends that signal when the *thread* that started the child ends, so one thread that lives
//! as long as the process starts all children.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::account::Account;
use super::error::{Result, file, system};
use super::orphans::ChildRegistry;

/// A longer log is set aside at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Length of the end of a log that an error quotes.
const TAIL_BYTES: u64 = 4 << 10;
const TAIL_LINES: usize = 12;

/// Specification of a child: start and shutdown.
#[derive(Debug, Clone)]
pub(super) struct ChildSpec {
    /// Name in messages: `Postgres`, `replica 8081`.
    pub(super) name: String,
    /// Name in `pids`, one word.
    pub(super) role: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) environment: ChildEnvironment,
    /// Account to run as, if not the current user.
    pub(super) account: Option<Account>,
    pub(super) log: PathBuf,
    pub(super) shutdown: ShutdownPolicy,
}

#[derive(Debug, Clone)]
pub(super) enum ChildEnvironment {
    /// A minimal environment: a `PGDATA` or a locale of the user must not reach the services.
    Minimal,
    /// The environment of `up` with these changes; `None` removes a variable.
    Inherited(Vec<(String, Option<String>)>),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ShutdownPolicy {
    pub(super) signal: Signal,
    /// Name of the signal, for `setpriv`.
    pub(super) signal_name: &'static str,
    pub(super) grace_period: Duration,
    /// The harsher signal that follows, at once on a second `^C`.
    pub(super) escalation: Signal,
}

impl ShutdownPolicy {
    /// TERM, then KILL.
    pub(super) fn terminate(grace_period: Duration) -> Self {
        let (signal, escalation) = (Signal::TERM, Signal::KILL);
        Self { signal, signal_name: "TERM", grace_period, escalation }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Spawner {
    requests: mpsc::Sender<SpawnRequest>,
    registry: Arc<ChildRegistry>,
    has_setpriv: bool,
}

#[derive(Debug)]
struct SpawnRequest {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// A started child, and the offset of its output in its log.
#[derive(Debug)]
pub(super) struct StartedChild {
    pub(super) child: Child,
    pub(super) log_from: u64,
}

impl Spawner {
    /// Starts the thread that starts the children.
    pub(super) fn new(registry: Arc<ChildRegistry>) -> Result<Self> {
        let (requests, received) = mpsc::channel::<SpawnRequest>();
        let runtime = tokio::runtime::Handle::current();
        thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                let _runtime = runtime.enter();
                for mut request in received {
                    // If the receiver is gone, the child is dropped and thereby killed.
                    let _ = request.reply.send(request.command.spawn());
                }
                // No more requests can arrive, but children that depend on this thread may run.
                loop {
                    thread::park();
                }
            })
            .map_err(system("cannot start a thread"))?;
        Ok(Self { requests, registry, has_setpriv: has_setpriv() })
    }

    /// Starts a child, and records it for the next `up`.
    pub(super) async fn start(&self, spec: &ChildSpec) -> Result<StartedChild> {
        let (log, log_from) = open_log(&spec.log)?;
        let (reply, child) = oneshot::channel();
        let _ = self.requests.send(SpawnRequest { command: self.command(spec, log)?, reply });
        let ended = || io::Error::other("the spawner has ended");
        let child = child.await.unwrap_or_else(|_| Err(ended()));
        let child = child.map_err(file("cannot start", &spec.program))?;
        if let Some(pid) = child.id() {
            self.registry.record_child(&spec.role, pid)?;
        }
        Ok(StartedChild { child, log_from })
    }

    fn command(&self, spec: &ChildSpec, log: File) -> Result<Command> {
        let death_signal = self.has_setpriv.then_some(spec.shutdown.signal_name);
        let mut command = command_with(death_signal, &spec.program);
        let errors = log.try_clone().map_err(file("cannot open again", &spec.log))?;
        command.args(&spec.args).stdin(Stdio::null()).stdout(log).stderr(errors);
        match &spec.environment {
            ChildEnvironment::Minimal => set_minimal_environment(&mut command),
            ChildEnvironment::Inherited(changes) => {
                for (name, value) in changes {
                    match value {
                        Some(value) => command.env(name, value),
                        None => command.env_remove(name),
                    };
                }
            }
        }
        if let Some(account) = &spec.account {
            // The standard library also drops the supplementary groups when root becomes a user.
            command.uid(account.uid).gid(account.gid);
        }
        Ok(command)
    }
}

/// Returns a command whose process is sent TERM when the thread that started it ends (on Linux), so
/// that an `up` does not outlive its starter. Must be started from the main thread.
pub fn tied_command(program: &Path) -> Command {
    command_with(has_setpriv().then_some("TERM"), program)
}

/// Returns a command whose process gets a process group of its own, and a signal when the thread
/// that started it ends.
fn command_with(death_signal: Option<&str>, program: &Path) -> Command {
    let mut command = match death_signal {
        Some(signal) => {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", signal, "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.process_group(0).kill_on_drop(true);
    command
}

/// Sets an environment that is the same on every machine, and a working folder open to all users.
pub(super) fn set_minimal_environment(command: &mut Command) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
}

/// Returns the last lines of a log, from the offset `from` on.
pub(super) fn tail(log: &Path, from: u64) -> String {
    let read = || -> io::Result<String> {
        let mut log = File::open(log)?;
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(from.max(end.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() {
        return "  (it said nothing)".to_owned();
    }
    let last = lines.iter().skip(lines.len().saturating_sub(TAIL_LINES));
    last.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn open_log(path: &Path) -> Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|meta| meta.len() > MAX_LOG_BYTES) {
        let _ = fs::rename(path, path.with_extension("log.1"));
    }
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let log = open.map_err(file("cannot open the log", path))?;
    let length = log.metadata().map_err(file("cannot read the log", path))?.len();
    Ok((log, length))
}

/// Returns whether `setpriv` supports `--pdeathsig` (on Linux, not in busybox).
fn has_setpriv() -> bool {
    let tried = std::process::Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    cfg!(target_os = "linux") && tried.is_ok_and(|status| status.success())
}
