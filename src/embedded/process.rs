//! Starts children, each in a process group of its own, on Linux not to outlive `up`.
//!
//! Guarantees that `^C` on the terminal reaches `up` alone, which then stops its children in order,
//! and that a child's output goes to its log. On Linux (with `setpriv`) a child receives a signal
//! when `up` dies, however it dies; elsewhere the next `up` ends it (`orphans.rs`).
//!
//! Linux sends that signal when the *thread* that started the child ends, so only the main thread
//! starts children.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::error::{Result, file};
use super::owned::open_own;

/// A longer log is set aside at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Length of the end of a log that an error quotes.
const TAIL_BYTES: u64 = 4 << 10;
const TAIL_LINES: usize = 12;
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ChildSpec {
    /// Name in messages: `Postgres`, `replica 8081`.
    pub(super) name: String,
    /// Name of its log and in `pids`, one word.
    pub(super) role: String,
    pub(super) command: Command,
    pub(super) shutdown: ShutdownPolicy,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ShutdownPolicy {
    pub(super) signal: Signal,
    pub(super) grace_period: Duration,
    /// The harsher signal that follows, at once on a second `^C`.
    pub(super) escalation: Signal,
}

impl ShutdownPolicy {
    /// TERM, then KILL.
    pub(super) fn terminate(grace_period: Duration) -> Self {
        Self { signal: Signal::TERM, grace_period, escalation: Signal::KILL }
    }
}

/// Returns a command whose process gets a process group of its own and, on Linux, `death_signal`
/// (e.g. `TERM`) when the thread that started it ends. Must be started from the main thread.
pub fn tied_command(program: &Path, death_signal: &str) -> Command {
    let mut command = Command::new(if *HAS_SETPRIV { Path::new("setpriv") } else { program });
    if *HAS_SETPRIV {
        command.args(["--pdeathsig", death_signal, "--"]).arg(program);
    }
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null());
    command
}

/// Whether `setpriv` supports `--pdeathsig` (on Linux, not in busybox).
static HAS_SETPRIV: LazyLock<bool> = LazyLock::new(|| {
    let tried = std::process::Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    cfg!(target_os = "linux") && tried.is_ok_and(|status| status.success())
});

/// Starts a command with its output in `log`; returns the offset of its output, too.
pub(super) fn start(command: &mut Command, log: &Path) -> Result<(Child, u64)> {
    if fs::metadata(log).is_ok_and(|meta| meta.len() > MAX_LOG_BYTES) {
        let _ = fs::rename(log, log.with_extension("log.1"));
    }
    let open = open_own(log, OpenOptions::new().append(true).create(true).mode(0o600));
    let output = open.map_err(file("cannot open the log", log))?;
    let log_from = output.metadata().map_err(file("cannot read the log", log))?.len();
    let errors = output.try_clone().map_err(file("cannot open again", log))?;
    let program = PathBuf::from(command.as_std().get_program());
    let child = command.stdout(output).stderr(errors).spawn();
    Ok((child.map_err(file("cannot start", &program))?, log_from))
}

/// Reason why a process is not ready.
pub(super) enum NotReady<E> {
    Exited(E),
    /// With the last error of the probe.
    TimedOut(String),
}

/// Waits until `probe` succeeds, the process has exited, or `limit` is over.
pub(super) async fn wait_ready<T, E, P>(
    limit: Duration,
    probe: impl Fn() -> P,
    exited: impl Future<Output = E>,
) -> std::result::Result<T, NotReady<E>>
where
    P: Future<Output = std::result::Result<T, String>>,
{
    let mut last = "no attempt yet".to_owned();
    let probing = async {
        loop {
            match probe().await {
                Ok(ready) => break ready,
                Err(error) => last = error,
            }
            sleep(PROBE_INTERVAL).await;
        }
    };
    let outcome = tokio::select! {
        outcome = timeout(limit, probing) => outcome,
        exited = exited => return Err(NotReady::Exited(exited)),
    };
    outcome.map_err(|_| NotReady::TimedOut(last))
}

/// Sends a signal to a child that was not reaped yet, so that its pid is still its own.
pub(super) fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// Asks a child to exit with this signal, and kills it after the grace period.
pub(super) async fn end(child: &mut Child, signal: Signal, grace_period: Duration) {
    send(child, signal);
    if timeout(grace_period, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
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
        return "  (no output)".to_owned();
    }
    let last = lines.iter().skip(lines.len().saturating_sub(TAIL_LINES));
    last.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
