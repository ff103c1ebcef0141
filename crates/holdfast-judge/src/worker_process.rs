//! The judge's side of a worker process.

use std::process::Stdio;

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::failure::JudgeFailure;
use super::processes::{signal_group, signal_tree, stop_tree};
use super::protocol::{WorkerOrder, WorkerReport, WorkerSetup};
use holdfast_services::tied_command;

/// A message of a worker process to the judge.
#[derive(Debug)]
pub(super) struct WorkerMessage {
    pub(super) worker: u32,
    /// Number of the process: a killed worker's successor has another.
    pub(super) process: u32,
    /// `None` at its end.
    pub(super) report: Option<WorkerReport>,
}

/// A worker process, which is killed with its group when this is dropped.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) process: u32,
    child: Child,
    stdin: ChildStdin,
    pub(super) leader: i32,
}

impl WorkerProcess {
    /// Starts a worker in a group of its own. Must be called from the main thread: when that ends,
    /// the worker is continued if it is stopped, finds its stdin closed, and ends its tree.
    pub(super) async fn start(
        setup: &WorkerSetup,
        process: u32,
        messages: mpsc::UnboundedSender<WorkerMessage>,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("can't find its own program file")?;
        let mut child = tied_command(&program, "CONT")
            .arg("judge-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start a worker")?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).context("it has no id")?;
        let stdin = child.stdin.take().context("the worker has no stdin")?;
        let stdout = child.stdout.take().context("the worker has no stdout")?;

        tokio::spawn(read_reports(stdout, setup.worker, process, messages));
        let mut worker = Self { process, child, stdin, leader };
        worker.send_line(&serde_json::to_string(setup)?).await;
        Ok(worker)
    }

    pub(super) async fn order(&mut self, order: WorkerOrder) -> anyhow::Result<()> {
        self.send_line(&serde_json::to_string(&order)?).await;
        Ok(())
    }

    /// Sends a line; that a worker has ended is reported by its stdout.
    async fn send_line(&mut self, line: &str) {
        let _ = self.stdin.write_all(format!("{line}\n").as_bytes()).await;
    }

    /// Kills worker and adapter. They are stopped before, as a dead process has no descendants.
    pub(super) async fn kill(&mut self) {
        if self.child.id().is_none() {
            return;
        }
        let _ = stop_tree(self.leader).await;
        signal_tree(self.leader, Signal::KILL);
        let _ = self.child.wait().await;
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Afterwards the group's id may belong to others.
        if self.child.id().is_some() {
            signal_group(self.leader, Signal::KILL);
        }
    }
}

async fn read_reports(
    stdout: ChildStdout,
    worker: u32,
    process: u32,
    messages: mpsc::UnboundedSender<WorkerMessage>,
) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let report = serde_json::from_str(&line).unwrap_or_else(|error| {
            let why = format!("a worker printed {line:?}: {error}");
            WorkerReport::Failed(JudgeFailure::other(why))
        });
        if messages.send(WorkerMessage { worker, process, report: Some(report) }).is_err() {
            return;
        }
    }

    let _ = messages.send(WorkerMessage { worker, process, report: None });
}
