//! The instances of a service: processes that the judge starts, stops, kills and ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use holdfast_base::output::print_progress;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::file::program;
use super::http::HttpRequest;
use crate::adapter::{LAST_WORDS_TIMEOUT, LastLines, joined, keep_last_lines};
use crate::kept::{KeptProcess, run_kept};
use crate::processes::{signal_process, signal_tree, stop_tree};

/// Time for an instance to serve: some compile themselves first.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// An instance that serves what needs a sign-in, or nothing, on this path will not change its mind.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(10);
const READY_INTERVAL: Duration = Duration::from_millis(50);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for an instance to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The setup of an instance: the first line to the process that keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InstanceSetup {
    pub(super) command: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) env: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Instance {
    number: usize,
    /// Its URL.
    pub(super) base: String,
    /// `None` of a service that runs already.
    process: Option<InstanceProcess>,
}

#[derive(Debug)]
struct InstanceProcess {
    setup: InstanceSetup,
    kept: KeptProcess,
    /// What its keeper has said so far of how it ended.
    ending: Vec<u8>,
    last_words: LastLines,
}

impl InstanceProcess {
    async fn start(setup: InstanceSetup) -> anyhow::Result<Self> {
        let mut kept = KeptProcess::start("judge-instance", Stdio::piped())?;
        let output = kept.child.stderr.take().context("an instance has no output")?;
        let last_words = LastLines::default();
        tokio::spawn(keep_last_lines(output, Arc::clone(&last_words)));
        kept.send_line(&serde_json::to_string(&setup)?).await;
        Ok(Self { setup, kept, ending: Vec::new(), last_words })
    }

    /// Waits until it has ended, and returns how. A later call returns it, too, also if this one is
    /// dropped before.
    async fn wait_ended(&mut self) -> String {
        if let Some(stdout) = &mut self.kept.child.stdout {
            read_rest(stdout, &mut self.ending).await;
        }
        let _ = self.kept.child.wait().await;
        sleep(LAST_WORDS_TIMEOUT).await;
        String::from_utf8_lossy(&self.ending).trim_end().to_owned()
    }

    fn last_words(&self) -> String {
        match joined(&self.last_words).as_str() {
            "" => "The service has printed nothing".to_owned(),
            lines => format!("The end of what the service has printed:\n  {lines}"),
        }
    }
}

impl Instance {
    /// Starts an instance, from the main thread (see [`KeptProcess::start`]).
    pub(super) async fn start(
        number: usize,
        port: u16,
        setup: InstanceSetup,
    ) -> anyhow::Result<Self> {
        let base = format!("http://127.0.0.1:{port}");
        let process = InstanceProcess::start(setup).await?;
        Ok(Self { number, base, process: Some(process) })
    }

    /// Returns one that runs already.
    pub(super) fn attached(number: usize, url: &str) -> Self {
        Self { number, base: url.trim_end_matches('/').to_owned(), process: None }
    }

    /// Waits until it answers a request for `path` with 2xx.
    pub(super) async fn wait_ready(&mut self, path: &str) -> anyhow::Result<()> {
        let request = HttpRequest::get(&self.base, path)?;
        let (number, base) = (self.number + 1, &self.base);
        let is_ready = |status: u16| (200..300).contains(&status);
        let is_refusal = |status: u16| matches!(status, 300..=399 | 401 | 403 | 404 | 405);
        let mut last = "no answer".to_owned();
        let probing = async {
            let mut refused_at: Option<Instant> = None;
            loop {
                match timeout(ANSWER_TIMEOUT, request.send(is_ready)).await {
                    Ok(Ok(answer)) if is_ready(answer.status) => return true,
                    Ok(Ok(answer)) => {
                        last = answer.describe();
                        refused_at = is_refusal(answer.status)
                            .then(|| refused_at.unwrap_or_else(Instant::now));
                    }
                    Ok(Err(error)) => last = error.to_string(),
                    Err(_) => last = format!("no answer within {ANSWER_TIMEOUT:?}"),
                }
                if refused_at.is_some_and(|at| at.elapsed() >= REFUSED_TIMEOUT) {
                    return false;
                }
                sleep(READY_INTERVAL).await;
            }
        };
        let in_time = timeout(READY_TIMEOUT, probing);

        let Some(process) = &mut self.process else {
            let is_ready = in_time.await.unwrap_or(false);
            ensure!(is_ready, "{base}{path} does not answer with 2xx: {last}");
            return Ok(());
        };
        let ready = tokio::select! {
            ready = in_time => ready,
            how = process.wait_ended() => bail!(
                "instance {number} of the service ended before it was ready: {how}. `start` must \
                 be a command that stays. {}",
                process.last_words()
            ),
        };
        let limit = match ready {
            Ok(true) => return Ok(()),
            Ok(false) => REFUSED_TIMEOUT,
            Err(_) => READY_TIMEOUT,
        };
        bail!(
            "instance {number} of the service does not answer {path} on port {} with 2xx after \
             {limit:?}: {last}. It must listen on the port that {{port}} names, and `ready` must be \
             a path that needs no sign-in. {}",
            base.rsplit(':').next().unwrap_or_default(),
            process.last_words()
        )
    }

    /// Returns the end of what it has printed, if it is the judge's.
    pub(super) fn last_words(&self) -> Option<String> {
        self.process.as_ref().map(InstanceProcess::last_words)
    }

    /// Fails if it has ended by itself.
    pub(super) async fn check_running(&mut self) -> anyhow::Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if process.kept.child.try_wait().is_ok_and(|status| status.is_none()) {
            return Ok(());
        }
        let how = process.wait_ended().await;
        bail!(
            "instance {} of the service ended while it was judged: {how}. {}",
            self.number + 1,
            process.last_words()
        )
    }

    /// Stops all its processes.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        match &self.process {
            Some(process) => stop_tree(process.kept.leader).await,
            None => Ok(()),
        }
    }

    pub(super) fn resume(&self) {
        if let Some(process) = &self.process {
            signal_tree(process.kept.leader, Signal::CONT);
        }
    }

    pub(super) async fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            process.kept.kill().await;
        }
    }

    /// Sends SIGTERM to its command, as a process manager does.
    pub(super) async fn terminate(&mut self) {
        if let Some(process) = &mut self.process {
            process.kept.send_line("terminate").await;
        }
    }

    /// Waits until it has ended after SIGTERM; one that has not in time is killed.
    pub(super) async fn wait_terminated(&mut self) {
        let Some(process) = &mut self.process else { return };
        if timeout(END_TIMEOUT, process.wait_ended()).await.is_err() {
            print_progress(&format!(
                "instance {} has not ended {END_TIMEOUT:?} after SIGTERM, and is killed",
                self.number + 1
            ));
            process.kept.kill().await;
        }
    }

    /// Starts it again if it has ended by itself, as its supervisor would.
    pub(super) async fn revive(&mut self, ready: &str) -> anyhow::Result<()> {
        let Err(ended) = self.check_running().await else { return Ok(()) };
        print_progress(&format!("{ended:#}\nIt is started again, as by a supervisor."));
        self.start_again(ready).await
    }

    /// Starts one that has ended again.
    pub(super) async fn start_again(&mut self, ready: &str) -> anyhow::Result<()> {
        if let Some(process) = &mut self.process {
            *process = InstanceProcess::start(process.setup.clone()).await?;
        }
        self.wait_ready(ready).await
    }
}

/// Reads to the end. A dropped future loses nothing that it has read.
async fn read_rest(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) {
    while from.read_buf(into).await.is_ok_and(|read| read > 0) {}
}

/// Keeps an instance for the judge: starts it, sends it SIGTERM at the next line, and ends all its
/// processes with the judge. What it prints goes to stderr; how it ended, to stdout.
pub async fn run_instance() -> anyhow::Result<()> {
    run_kept(keep).await
}

async fn keep(mut lines: mpsc::UnboundedReceiver<String>) -> anyhow::Result<()> {
    let first = lines.recv().await.unwrap_or_default();
    let setup: InstanceSetup = serde_json::from_str(&first)
        .context("`judge-instance` is started by `holdfast judge service`")?;

    let (program, arguments) = program(&setup.command, &setup.folder, "[service] start")?;
    let errors = std::io::stderr();
    let output = std::os::fd::AsFd::as_fd(&errors).try_clone_to_owned()?;
    let child = Command::new(&program)
        .args(arguments)
        .current_dir(&setup.folder)
        .envs(&setup.env)
        .stdin(Stdio::null())
        .stdout(output)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("`{}` can't be started: {error}", program.display());
            return Ok(());
        }
    };

    let ended = loop {
        let line = tokio::select! {
            ended = child.wait() => break ended?,
            line = lines.recv() => line,
        };
        if line.is_none() {
            return Ok(());
        }
        if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
            signal_process(pid, Signal::TERM);
        }
    };
    println!("{ended}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn dropped_wait_loses_nothing() {
        let (mut keeper, mut stdout) = tokio::io::duplex(64);
        let mut ending = Vec::new();
        keeper.write_all(b"exit ").await.expect("room");
        assert!(poll!(Box::pin(read_rest(&mut stdout, &mut ending))).is_pending());

        keeper.write_all(b"status: 1").await.expect("room");
        drop(keeper);
        read_rest(&mut stdout, &mut ending).await;
        assert_eq!(ending, b"exit status: 1");
    }
}
