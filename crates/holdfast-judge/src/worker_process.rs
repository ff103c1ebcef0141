//! The judge's side of a worker process.

use std::process::Stdio;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::mpsc;

use super::failure::JudgeFailure;
use super::kept::KeptProcess;
use super::protocol::{WorkerOrder, WorkerReport, WorkerSetup};

/// A message of a worker process to the judge.
#[derive(Debug)]
pub(super) struct WorkerMessage {
    pub(super) worker: u32,
    /// Number of the process: a killed worker's successor has another.
    pub(super) process: u32,
    /// `None` at its end.
    pub(super) report: Option<WorkerReport>,
}

#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) process: u32,
    pub(super) kept: KeptProcess,
}

impl WorkerProcess {
    /// Starts a worker, from the main thread (see [`KeptProcess::start`]).
    pub(super) async fn start(
        setup: &WorkerSetup,
        process: u32,
        messages: mpsc::UnboundedSender<WorkerMessage>,
    ) -> anyhow::Result<Self> {
        let mut kept = KeptProcess::start("judge-worker", Stdio::inherit())?;
        let stdout = kept.child.stdout.take().context("the worker has no stdout")?;

        tokio::spawn(read_reports(stdout, setup.worker, process, messages));
        kept.send_line(&serde_json::to_string(setup)?).await;
        Ok(Self { process, kept })
    }

    pub(super) async fn order(&mut self, order: WorkerOrder) -> anyhow::Result<()> {
        self.kept.send_line(&serde_json::to_string(&order)?).await;
        Ok(())
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
