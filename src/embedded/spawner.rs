//! Starts children, each in a process group of its own, on Linux not to outlive `up`.
//!
//! Guarantees that `^C` on the terminal reaches `up` alone, which then stops its children in order,
//! and that a child's output goes to its log. On Linux (with `setpriv`) a child receives a signal
//! when `up` dies, however it dies; elsewhere the next `up` ends it (`leftovers.rs`).
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
use super::leftovers::Notes;

/// A longer log is set aside at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Length of the end of a log that an error quotes.
const TAIL_BYTES: u64 = 4 << 10;
const TAIL_LINES: usize = 12;

/// Specification of a child: start and shutdown.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// Name in messages: `Postgres`, `replica 8081`.
    pub(super) name: String,
    /// Name in the notes, one word.
    pub(super) role: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) environment: Environment,
    /// Account to run as, if not the current user.
    pub(super) account: Option<Account>,
    pub(super) log: PathBuf,
    pub(super) ending: Ending,
}

#[derive(Debug, Clone)]
pub(super) enum Environment {
    /// A minimal environment: a `PGDATA` or a locale of the user must not reach the services.
    Bare,
    /// The environment of `up` with these changes; `None` removes a variable.
    Ours(Vec<(String, Option<String>)>),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) signal: Signal,
    /// Name of the signal, for `setpriv`.
    pub(super) signal_name: &'static str,
    pub(super) patience: Duration,
    /// The harsher signal that follows, at once on a second `^C`.
    pub(super) hurry: Signal,
}

#[derive(Debug, Clone)]
pub(super) struct Spawner {
    orders: mpsc::Sender<Order>,
    notes: Arc<Notes>,
    setpriv: bool,
}

#[derive(Debug)]
struct Order {
    command: Command,
    answer: oneshot::Sender<io::Result<Child>>,
}

/// A started child, and the offset of its output in its log.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) log_from: u64,
}

impl Spawner {
    /// Starts the thread that starts the children.
    pub(super) fn new(notes: Arc<Notes>) -> Result<Self> {
        let (orders, received) = mpsc::channel::<Order>();
        let runtime = tokio::runtime::Handle::current();
        thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                let _runtime = runtime.enter();
                for mut order in received {
                    // If the receiver is gone, the child is dropped and thereby killed.
                    let _ = order.answer.send(order.command.spawn());
                }
                // No more orders can arrive, but children that depend on this thread may still run.
                loop {
                    thread::park();
                }
            })
            .map_err(system("cannot start a thread"))?;
        Ok(Self { orders, notes, setpriv: can_setpriv() })
    }

    /// Starts a child, and notes it for the next `up`.
    pub(super) async fn start(&self, spec: &Spec) -> Result<Started> {
        let (log, log_from) = open_log(&spec.log)?;
        let (answer, child) = oneshot::channel();
        let _ = self.orders.send(Order { command: self.command(spec, log)?, answer });
        let gone = || io::Error::other("the spawner has ended");
        let child = child.await.unwrap_or_else(|_| Err(gone()));
        let child = child.map_err(file("cannot start", &spec.program))?;
        if let Some(pid) = child.id() {
            self.notes.child(&spec.role, pid)?;
        }
        Ok(Started { child, log_from })
    }

    fn command(&self, spec: &Spec, log: File) -> Result<Command> {
        let mut command = if self.setpriv {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", spec.ending.signal_name, "--"]).arg(&spec.program);
            command
        } else {
            Command::new(&spec.program)
        };
        let errors = log.try_clone().map_err(file("cannot open again", &spec.log))?;
        command.args(&spec.args).stdin(Stdio::null()).stdout(log).stderr(errors);
        command.process_group(0).kill_on_drop(true);
        match &spec.environment {
            Environment::Bare => bare(&mut command),
            Environment::Ours(changes) => {
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
pub fn tied(program: &Path) -> Command {
    let mut command = if can_setpriv() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.process_group(0).kill_on_drop(true);
    command
}

/// Sets an environment that is the same on every machine, and a working folder open to all users.
pub(super) fn bare(command: &mut Command) {
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
fn can_setpriv() -> bool {
    let tried = std::process::Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    cfg!(target_os = "linux") && tried.is_ok_and(|status| status.success())
}
