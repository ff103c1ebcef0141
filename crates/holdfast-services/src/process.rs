//! Starts children, each in a process group of its own, so that `^C` on the terminal reaches `up`
//! alone, with its output in a log. On Linux (with `setpriv`) a child receives a signal when `up`
//! dies, however it dies; elsewhere the next `up` ends it (`orphans.rs`). Linux sends that signal
//! when the *thread* that started the child ends, so only the main thread starts children.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::owned::{file, open_own};

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
    pub(super) program: PathBuf,
    pub(super) command: Command,
    /// The signal that asks it to exit.
    pub(super) signal: Signal,
    pub(super) grace_period: Duration,
    /// The harsher signal that follows.
    pub(super) escalation: Signal,
}

/// Returns a command whose process gets a process group of its own and, on Linux, `death_signal`
/// (e.g. `TERM`) when the thread that started it ends. Must be started from the main thread.
pub fn tied_command(program: &Path, death_signal: &str) -> Command {
    // Another program, as a call between fork and exec is unsafe in Rust.
    let mut command = Command::new(if *HAS_SETPRIV { Path::new("setpriv") } else { program });
    if *HAS_SETPRIV {
        command.args(["--pdeathsig", death_signal, "--"]).arg(program);
    }
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null());
    command
}

/// Returns the file of this program: of the one that runs, also if a build has replaced it.
pub fn own_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("can't find its own program file")?;
    // By its id: what is in `/proc/self` would be `setpriv`, which starts it.
    let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    Ok(if running.exists() && !program.exists() { running } else { program })
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

#[derive(Debug)]
pub(super) struct ServerProcess {
    pub(super) child: Child,
    pub(super) log: ProcessLog,
}

#[derive(Debug, Clone)]
pub(super) struct ProcessLog {
    path: PathBuf,
    /// Length of the file before the process.
    from: u64,
}

impl ServerProcess {
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        if fs::metadata(log).is_ok_and(|meta| meta.len() > MAX_LOG_BYTES) {
            let _ = fs::rename(log, log.with_extension("log.1"));
        }

        let output = open_own(log, OpenOptions::new().append(true).create(true).mode(0o600))
            .map_err(file("cannot open the log", log))?;
        let from = output.metadata().map_err(file("cannot read the log", log))?.len();
        let errors = output.try_clone().map_err(file("cannot open again", log))?;

        let program = PathBuf::from(command.as_std().get_program());
        let child = command.stdout(output).stderr(errors).spawn();
        let child = child.map_err(file("cannot start", &program))?;
        Ok(Self { child, log: ProcessLog { path: log.to_owned(), from } })
    }

    /// Waits until `probe` succeeds. Fails if the process exits before, or after `limit`.
    pub(super) async fn wait_ready<T>(
        &mut self,
        name: &str,
        limit: Duration,
        probe: impl AsyncFn() -> Result<T, String>,
    ) -> Result<T> {
        let Self { child, log } = self;
        let exited = async { log.died(name, &describe(child.wait().await)) };
        wait_ready(name, limit, log, probe, exited).await
    }

    /// Sends a signal unless the child was reaped: then its pid may be another's.
    pub(super) fn send(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }

    pub(super) async fn end(&mut self, signal: Signal, grace_period: Duration) {
        self.send(signal);
        if timeout(grace_period, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// As [`ServerProcess::wait_ready`]; `exited` waits for its exit.
pub(super) async fn wait_ready<T>(
    name: &str,
    limit: Duration,
    log: &ProcessLog,
    probe: impl AsyncFn() -> Result<T, String>,
    exited: impl Future<Output = anyhow::Error>,
) -> Result<T> {
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

        error = exited => return Err(error),
    };
    match outcome {
        Ok(ready) => Ok(ready),
        Err(_) => bail!("{name} is not ready after {limit:?} ({last}). {}", log.tail()),
    }
}

impl ProcessLog {
    pub(super) fn died(&self, name: &str, status: &str) -> anyhow::Error {
        anyhow!("{name} ended before it was ready ({status}). {}", self.tail())
    }

    pub(super) fn tail(&self) -> String {
        let bytes = self.read_end().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n  ");
        format!("The end of {}:\n  {last}", self.path.display())
    }

    fn read_end(&self) -> io::Result<Vec<u8>> {
        let mut log = File::open(&self.path)?;
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(self.from.max(end.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

pub(super) fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its status is unknown: {error}"),
    }
}
