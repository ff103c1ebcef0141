//! Supervises children, one task each: waits for the child, restarts it after a crash, stops it.
//!
//! Guarantees that a child which was ready once is restarted whenever it exits by itself, with
//! backoff if it keeps exiting, and that after `stop` it no longer runs. Does not detect a child
//! that hangs: a paused process is a lesson, not a failure.
//!
//! The tasks are local to the main thread, because they start processes (`process.rs`).

use std::path::PathBuf;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::error::{Error, Result};
use super::orphans::ChildRegistry;
use super::print_progress;
use super::process::{self, ChildSpec, NotReady, ShutdownPolicy, send, tail};
use crate::backoff::Backoff;

const RESTART_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
/// A child that ran this long restarts without the accumulated backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Time between the harsher signal and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct SupervisedChild {
    handle: ProcessHandle,
    log: PathBuf,
    log_from: u64,
    desired: watch::Sender<DesiredState>,
    ended: watch::Receiver<Option<String>>,
}

/// A signal to send, and the channel that confirms it.
type SignalRequest = (Signal, oneshot::Sender<()>);

/// Control of a child: pause, resume and kill. A killed child is restarted; at shutdown a paused
/// child is resumed first, so that it can exit.
#[derive(Debug, Clone)]
pub struct ProcessHandle {
    name: String,
    signals: mpsc::UnboundedSender<SignalRequest>,
}

impl ProcessHandle {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Pauses the child (SIGSTOP). Like the others, returns once the signal was sent, or at once if
    /// the child is down and about to restart.
    pub async fn pause(&self) {
        self.send(Signal::STOP).await;
    }

    /// Resumes the child (SIGCONT); no effect on a running child.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum DesiredState {
    /// The child is starting: an exit is an error, not a crash.
    Start,
    Run,
    Stop,
    /// As `Stop`, without the grace period.
    StopNow,
}

struct ChildSupervisor {
    spec: ChildSpec,
    log: PathBuf,
    log_from: u64,
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
        let mut supervisor = ChildSupervisor {
            spec,
            log: log.clone(),
            log_from: 0,
            registry,
            desired: desired_state,
            signals: requests,
        };
        let child = supervisor.start()?;
        let log_from = supervisor.log_from;
        tokio::task::spawn_local(async move {
            end.send_replace(Some(supervisor.supervise(child).await));
        });
        Ok(Self { handle, log, log_from, desired, ended })
    }

    /// Waits until `probe` succeeds; from then on the child is restarted whenever it exits.
    pub(super) async fn wait_ready<P>(&self, limit: Duration, probe: impl Fn() -> P) -> Result<()>
    where
        P: Future<Output = std::result::Result<(), String>>,
    {
        match process::wait_ready(limit, probe, self.wait_failed()).await {
            Ok(()) => {
                self.desired.send_replace(DesiredState::Run);
                Ok(())
            }
            Err(NotReady::Exited(error)) => Err(error),
            Err(NotReady::TimedOut(last)) => Err(Error::NotReady {
                name: self.handle.name.clone(),
                seconds: limit.as_secs(),
                last,
                log: self.log.clone(),
                tail: tail(&self.log, self.log_from),
            }),
        }
    }

    pub(super) fn handle(&self) -> ProcessHandle {
        self.handle.clone()
    }

    /// Waits until the child is no longer supervised, which is an error except after `stop`.
    pub(super) async fn wait_failed(&self) -> Error {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        Error::Died {
            name: self.handle.name.clone(),
            status: status.unwrap_or_else(|| "its task ended".to_owned()),
            log: self.log.clone(),
            tail: tail(&self.log, self.log_from),
        }
    }

    /// Stops the child, and waits until it has exited.
    pub(super) async fn stop(&self) {
        // After `stop_now`, the child is already stopping.
        self.desired.send_if_modified(|state| {
            let running = *state < DesiredState::Stop;
            *state = if running { DesiredState::Stop } else { *state };
            running
        });
        let _ = self.ended.clone().wait_for(Option::is_some).await;
    }

    /// Ends the grace period of [`SupervisedChild::stop`], which still waits for the exit.
    pub(super) fn stop_now(&self) {
        self.desired.send_replace(DesiredState::StopNow);
    }
}

impl ChildSupervisor {
    /// Starts the child, and records it for the next `up`.
    fn start(&mut self) -> Result<Child> {
        let (child, log_from) = process::start(&mut self.spec.command, &self.log)?;
        self.log_from = log_from;
        if let Some(pid) = child.id() {
            self.registry.record_child(&self.spec.role, pid)?;
        }
        Ok(child)
    }

    /// Supervises the child until `stop`, or until it exits before it was ready; returns how it
    /// exited.
    async fn supervise(mut self, mut child: Child) -> String {
        let mut restarts = 0;
        loop {
            let since = Instant::now();
            // Killed by the lab: no failure to investigate.
            let mut killed = false;
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status,
                    () = wait_for(&mut self.desired, DesiredState::Stop) => {
                        return self.shut_down(child).await;
                    }
                    Some((signal, confirmation)) = self.signals.recv() => {
                        send(&child, signal);
                        killed |= signal == Signal::KILL;
                        let _ = confirmation.send(());
                    }
                }
            };
            let status = describe(status);
            if *self.desired.borrow() == DesiredState::Start {
                return status;
            }
            if since.elapsed() > STABLE_AFTER {
                restarts = 0;
            }
            let name = &self.spec.name;
            if killed {
                print_progress(&format!("{name} was killed by the lab, as planned"));
            } else {
                let output = tail(&self.log, self.log_from);
                print_progress(&format!("{name} ended ({status}); the end of its log:\n{output}"));
            }
            match self.restart(&mut restarts).await {
                Some(started) => child = started,
                None => return status,
            }
        }
    }

    /// Restarts the child with backoff until that succeeds; `None` if it is stopped first.
    async fn restart(&mut self, restarts: &mut u32) -> Option<Child> {
        loop {
            *restarts += 1;
            let wait = RESTART_BACKOFF.after(*restarts);
            let name = &self.spec.name;
            print_progress(&format!("restarting {name} in {:.1} s", wait.as_secs_f64()));
            let over = Instant::now() + wait;
            loop {
                tokio::select! {
                    () = sleep_until(over) => break,
                    () = wait_for(&mut self.desired, DesiredState::Stop) => return None,
                    // Meant for the process that has exited.
                    Some((_, confirmation)) = self.signals.recv() => drop(confirmation),
                }
            }
            match self.start() {
                Ok(child) => {
                    let pid = child.id().unwrap_or_default();
                    print_progress(&format!("{} has restarted (pid {pid})", self.spec.name));
                    return Some(child);
                }
                Err(error) => print_progress(&format!("{}: {error}", self.spec.name)),
            }
        }
    }

    /// Stops the child: sends its signal, then the harsher one, then SIGKILL.
    async fn shut_down(&mut self, mut child: Child) -> String {
        let ShutdownPolicy { signal, grace_period, escalation } = self.spec.shutdown;
        send(&child, Signal::CONT); // A paused process handles no signals.
        send(&child, signal);
        tokio::select! {
            status = child.wait() => return describe(status),
            () = sleep(grace_period) => {
                let (name, seconds) = (&self.spec.name, grace_period.as_secs());
                print_progress(&format!("{name} did not end within {seconds} s"));
            }
            () = wait_for(&mut self.desired, DesiredState::StopNow) => {}
        }
        send(&child, escalation);
        if let Ok(status) = timeout(KILL_DELAY, child.wait()).await {
            return describe(status);
        }
        send(&child, Signal::KILL);
        describe(child.wait().await)
    }
}

/// Waits until at least this state is desired, or the child's owner is dropped.
async fn wait_for(desired: &mut watch::Receiver<DesiredState>, state: DesiredState) {
    let _ = desired.wait_for(|desired| *desired >= state).await;
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its status is unknown: {error}"),
    }
}
