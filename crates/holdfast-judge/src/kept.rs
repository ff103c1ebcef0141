//! A process of this program that starts others for the judge, and ends them all when the judge
//! ends: at the end of its stdin it kills its descendants and its group (on Linux, also what was
//! detached).

use std::process::Stdio;

use anyhow::Context as _;
use rustix::process::{Signal, getpgrp, getpid, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::processes::{adopt_orphans, end_orphans, signal_group, signal_tree, stop_tree};
use holdfast_services::{own_program, tied_command};

/// The judge's side. The process is killed with its group when this is dropped.
#[derive(Debug)]
pub(super) struct KeptProcess {
    pub(super) child: Child,
    stdin: ChildStdin,
    pub(super) leader: i32,
}

impl KeptProcess {
    /// Starts the command `name` of this program in a group of its own. Must be called from the
    /// main thread: when that ends, the process is continued if it is stopped, and finds its stdin
    /// closed.
    pub(super) fn start(name: &str, stderr: Stdio) -> anyhow::Result<Self> {
        let mut child = tied_command(&own_program()?, "CONT")
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("can't start `{name}`"))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).context("it has no id")?;
        let stdin = child.stdin.take().context("it has no stdin")?;
        Ok(Self { child, stdin, leader })
    }

    /// Sends a line; that the process has ended is found elsewhere.
    pub(super) async fn send_line(&mut self, line: &str) {
        let _ = self.stdin.write_all(format!("{line}\n").as_bytes()).await;
    }

    /// Kills it and its descendants. They are stopped before, as a dead process has none.
    pub(super) async fn kill(&mut self) {
        if self.child.id().is_none() {
            return;
        }
        let _ = stop_tree(self.leader).await;
        signal_tree(self.leader, Signal::KILL);
        let _ = self.child.wait().await;
    }
}

impl Drop for KeptProcess {
    fn drop(&mut self) {
        // Afterwards the group's id may belong to others.
        if self.child.id().is_some() {
            signal_group(self.leader, Signal::KILL);
        }
    }
}

/// Runs `serve` with the lines of stdin, and ends the tree of this process afterwards.
pub(super) async fn run_kept(
    serve: impl AsyncFnOnce(mpsc::UnboundedReceiver<String>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    adopt_orphans();
    // The kernel sends it to a stopped group whose parent has died; by default it would end this
    // process before its descendants.
    let _hang_up = signal(SignalKind::hangup())?;
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lines();
        while let Some(Ok(line)) = lines.next()
            && sender.send(line).is_ok()
        {}
    });

    let served = serve(lines).await;

    // They may be stopped, and in another group.
    end_orphans(None).await;
    if served.is_ok() && getpgrp() == getpid() {
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    }
    served
}
