//! Supervises children, one task each. A child which was ready once is restarted whenever it exits
//! by itself, with backoff if it keeps exiting; after `stop` it no longer runs. A child that hangs
//! is not detected: a paused process is a lesson. The tasks are local to the main thread, because
//! they start processes (`process.rs`).

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::orphans::ChildRegistry;
use super::process::{self, ChildSpec, ProcessLog, ServerProcess, describe};
use holdfast_base::backoff::Backoff;
use holdfast_base::output::print_progress;

const RESTART_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
/// A child that ran this long restarts without the accumulated backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Time between the harsher signal and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct SupervisedChild {
    pub(super) handle: ProcessHandle,
    log: ProcessLog,
    desired: watch::Sender<DesiredState>,
    ended: watch::Receiver<Option<String>>,
}

type SignalRequest = (Signal, oneshot::Sender<()>);

/// Control of a child: pause, resume and kill. A killed child is restarted; at shutdown a paused
/// child is resumed first, so that it can exit.
#[derive(Debug, Clone)]
pub struct ProcessHandle {
    pub name: String,
    signals: mpsc::UnboundedSender<SignalRequest>,
}

impl ProcessHandle {
    /// Pauses the child (SIGSTOP). Like the others, returns once the signal was sent, or at once if
    /// the child is down and about to restart.
    pub async fn pause(&self) {
        self.send(Signal::STOP).await;
    }

    pub async fn resume(&self) {
        self.send(Signal::CONT).await;
    }

    pub async fn kill(&self) {
        self.send(Signal::KILL).await;
    }

    async fn send(&self, signal: Signal) {
        let (sent, confirmation) = oneshot::channel();
        if self.signals.send((signal, sent)).is_ok() {
            let _ = confirmation.await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DesiredState {
    /// The child is starting: an exit is an error, not a crash.
    Start,
    Run,
    Stop,
}

struct ChildSupervisor {
    spec: ChildSpec,
    log: PathBuf,
    registry: Rc<ChildRegistry>,
    desired: watch::Receiver<DesiredState>,
    signals: mpsc::UnboundedReceiver<SignalRequest>,
}

impl SupervisedChild {
    /// Starts a child. Must be called within a `LocalSet` on the main thread.
    pub(super) fn start(
        spec: ChildSpec,
        log: PathBuf,
        registry: Rc<ChildRegistry>,
    ) -> Result<Self> {
        let (desired, desired_state) = watch::channel(DesiredState::Start);
        let (end, ended) = watch::channel(None);
        let (signals, requests) = mpsc::unbounded_channel();
        let handle = ProcessHandle { name: spec.name.clone(), signals };
        let mut supervisor =
            ChildSupervisor { spec, log, registry, desired: desired_state, signals: requests };

        // Here and not in the task: `up` fails if a first start does.
        let process = supervisor.start()?;
        let log = process.log.clone();
        tokio::task::spawn_local(async move {
            end.send_replace(Some(supervisor.supervise(process).await));
        });
        Ok(Self { handle, log, desired, ended })
    }

    /// Waits until `probe` succeeds; from then on the child is restarted whenever it exits.
    pub(super) async fn wait_ready(
        &self,
        limit: Duration,
        probe: impl AsyncFn() -> Result<(), String>,
    ) -> Result<()> {
        let failed = self.wait_failed();
        process::wait_ready(&self.handle.name, limit, &self.log, probe, failed).await?;
        self.desired.send_replace(DesiredState::Run);
        Ok(())
    }

    /// Waits until the child is no longer supervised, which is an error except after `stop`.
    pub(super) async fn wait_failed(&self) -> anyhow::Error {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        self.log.died(&self.handle.name, status.as_deref().unwrap_or("its task ended"))
    }

    pub(super) async fn stop(&self) {
        self.desired.send_replace(DesiredState::Stop);
        let _ = self.ended.clone().wait_for(Option::is_some).await;
    }
}

impl ChildSupervisor {
    fn start(&mut self) -> Result<ServerProcess> {
        let process = ServerProcess::start(&mut self.spec.command, &self.log)?;
        if let Some(pid) = process.child.id() {
            self.registry.record_child(&self.spec.role, pid)?;
        }
        Ok(process)
    }

    /// Supervises the child until `stop`, or until it exits before it was ready; returns how it
    /// exited.
    async fn supervise(mut self, mut process: ServerProcess) -> String {
        let mut restarts = 0;
        loop {
            let since = Instant::now();
            let status = loop {
                tokio::select! {
                    status = process.child.wait() => break describe(status),
                    () = wait_for_stop(&mut self.desired) => {
                        return self.shut_down(process).await;
                    }
                    Some((signal, confirmation)) = self.signals.recv() => {
                        process.send(signal);
                        let _ = confirmation.send(());
                    }
                }
            };

            if *self.desired.borrow() == DesiredState::Start {
                return status;
            }
            if since.elapsed() > STABLE_AFTER {
                restarts = 0;
            }

            let name = &self.spec.name;
            print_progress(&format!("{name} ended ({status}). {}", process.log.tail()));
            match self.restart(&mut restarts).await {
                Some(started) => process = started,
                None => return status,
            }
        }
    }

    /// Restarts the child with backoff until that succeeds; `None` if it is stopped first.
    async fn restart(&mut self, restarts: &mut u32) -> Option<ServerProcess> {
        loop {
            *restarts += 1;
            let over = Instant::now() + RESTART_BACKOFF.after(*restarts);
            // Requests are answered during the pause, too: their senders wait for that.
            loop {
                tokio::select! {
                    () = sleep_until(over) => break,
                    () = wait_for_stop(&mut self.desired) => return None,
                    // Meant for the process that has exited.
                    Some((_, confirmation)) = self.signals.recv() => drop(confirmation),
                }
            }

            if !self.spec.program.exists() {
                let ChildSpec { name, program, .. } = &self.spec;
                print_progress(&format!(
                    "{name} can't be restarted: {} is gone. Install it again, or stop the shop",
                    program.display()
                ));
                continue;
            }

            match self.start() {
                Ok(process) => {
                    print_progress(&format!("{} has restarted", self.spec.name));
                    return Some(process);
                }
                Err(error) => print_progress(&format!("{}: {error:#}", self.spec.name)),
            }
        }
    }

    async fn shut_down(&self, mut process: ServerProcess) -> String {
        let ChildSpec { name, signal, grace_period, escalation, .. } = &self.spec;
        // A paused process handles no signals.
        process.send(Signal::CONT);
        for (signal, limit) in [(*signal, *grace_period), (*escalation, KILL_DELAY)] {
            process.send(signal);
            if let Ok(status) = timeout(limit, process.child.wait()).await {
                return describe(status);
            }
            print_progress(&format!("{name} did not end within {limit:?}"));
        }

        process.send(Signal::KILL);
        describe(process.child.wait().await)
    }
}

/// Waits until the child is to stop, or its owner is dropped.
async fn wait_for_stop(desired: &mut watch::Receiver<DesiredState>) {
    let _ = desired.wait_for(|desired| *desired == DesiredState::Stop).await;
}
