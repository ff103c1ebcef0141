//! Supervises children, one task each: waits for the child, restarts it after a crash, stops it.
//!
//! Guarantees that a child which was ready once is restarted whenever it exits by itself, with
//! backoff if it keeps exiting, and that after `stop` it no longer runs. Does not detect a child
//! that hangs: a paused process is a lesson, not a failure.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::error::{Error, Result};
use super::print_progress;
use super::spawner::{ChildSpec, ShutdownPolicy, Spawner, StartedChild, tail};
use crate::backoff::Backoff;

/// Backoff before restarts.
const RESTART_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
/// A child that ran this long restarts without the accumulated backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Time between the harsher signal and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(2);
/// Interval of readiness checks.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct SupervisedChild {
    name: String,
    log: PathBuf,
    log_from: u64,
    desired: watch::Sender<DesiredState>,
    signals: mpsc::UnboundedSender<SignalRequest>,
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

    /// Kills the child (SIGKILL).
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
    spawner: Spawner,
    desired: watch::Receiver<DesiredState>,
    signals: mpsc::UnboundedReceiver<SignalRequest>,
    is_urgent: watch::Receiver<bool>,
}

impl SupervisedChild {
    /// Starts a child; `is_urgent` becomes true to cut the grace period of its shutdown short.
    pub(super) async fn start(
        spawner: &Spawner,
        spec: ChildSpec,
        is_urgent: &watch::Receiver<bool>,
    ) -> Result<Self> {
        let started = spawner.start(&spec).await?;
        let (desired, desired_state) = watch::channel(DesiredState::Start);
        let (end, ended) = watch::channel(None);
        let (signals, signal_requests) = mpsc::unbounded_channel();
        let (name, log, log_from) = (spec.name.clone(), spec.log.clone(), started.log_from);
        let spawner = spawner.clone();
        let is_urgent = is_urgent.clone();
        let supervisor = ChildSupervisor {
            spec,
            spawner,
            desired: desired_state,
            signals: signal_requests,
            is_urgent,
        };
        tokio::spawn(async move {
            let status = supervisor.supervise(started).await;
            end.send_replace(Some(status));
        });
        Ok(Self { name, log, log_from, desired, signals, ended })
    }

    /// Waits until `probe` succeeds; from then on the child is restarted whenever it exits.
    pub(super) async fn wait_ready(
        &self,
        limit: Duration,
        probe: impl AsyncFn() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let mut last = "it was not asked".to_owned();
        let probing = async {
            loop {
                match probe().await {
                    Ok(()) => break,
                    Err(error) => last = error,
                }
                sleep(PROBE_INTERVAL).await;
            }
        };
        let outcome = tokio::select! {
            outcome = timeout(limit, probing) => outcome,
            error = self.wait_failed() => return Err(error),
        };
        if outcome.is_err() {
            let (name, log) = (self.name.clone(), self.log.clone());
            let (seconds, tail) = (limit.as_secs(), tail(&self.log, self.log_from));
            return Err(Error::NotReady { name, seconds, last, log, tail });
        }
        self.desired.send_replace(DesiredState::Run);
        Ok(())
    }

    /// Returns a control handle of the child.
    pub(super) fn handle(&self) -> ProcessHandle {
        ProcessHandle { name: self.name.clone(), signals: self.signals.clone() }
    }

    /// Waits until the child is no longer supervised, which is an error except after `stop`.
    pub(super) async fn wait_failed(&self) -> Error {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        Error::Died {
            name: self.name.clone(),
            status: status.unwrap_or_else(|| "its task ended".to_owned()),
            log: self.log.clone(),
            tail: tail(&self.log, self.log_from),
        }
    }

    pub(super) async fn stop(&mut self) {
        self.desired.send_replace(DesiredState::Stop);
        let _ = self.ended.wait_for(Option::is_some).await;
    }
}

impl ChildSupervisor {
    /// Supervises the child until `stop`, or until it exits before it was ready; returns how it
    /// exited.
    async fn supervise(mut self, first: StartedChild) -> String {
        let mut current = first;
        let mut restarts = 0;
        loop {
            let since = Instant::now();
            // Killed by the lab: no failure to investigate.
            let mut killed = false;
            let status = loop {
                tokio::select! {
                    status = current.child.wait() => break status,
                    () = wait_stopped(&mut self.desired) => return self.shut_down(current.child).await,
                    Some((signal, confirmation)) = self.signals.recv() => {
                        send(&current.child, signal);
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
                print_progress(&format!("the lab killed {name}, as its run wanted"));
            } else {
                let words = tail(&self.spec.log, current.log_from);
                print_progress(&format!("{name} ended ({status}); its last words:\n{words}"));
            }
            match self.restart(&mut restarts).await {
                Some(started) => current = started,
                None => return status,
            }
        }
    }

    /// Restarts the child with backoff until that succeeds; `None` if it is stopped first.
    async fn restart(&mut self, restarts: &mut u32) -> Option<StartedChild> {
        loop {
            *restarts += 1;
            let wait = RESTART_BACKOFF.after(*restarts);
            print_progress(&format!(
                "starting {} again in {:.1} s",
                self.spec.name,
                wait.as_secs_f64()
            ));
            let over = Instant::now() + wait;
            loop {
                tokio::select! {
                    () = sleep_until(over) => break,
                    () = wait_stopped(&mut self.desired) => return None,
                    // Meant for the process that has exited.
                    Some((_, confirmation)) = self.signals.recv() => drop(confirmation),
                }
            }
            match self.spawner.start(&self.spec).await {
                Ok(started) => {
                    let pid = started.child.id().unwrap_or_default();
                    print_progress(&format!("{} runs again (pid {pid})", self.spec.name));
                    return Some(started);
                }
                Err(error) => print_progress(&format!("{}: {error}", self.spec.name)),
            }
        }
    }

    /// Stops the child: sends its signal, then the harsher one, then SIGKILL.
    async fn shut_down(&mut self, mut child: Child) -> String {
        let ShutdownPolicy { signal, grace_period, escalation, .. } = self.spec.shutdown;
        send(&child, Signal::CONT); // A paused process handles no signals.
        send(&child, signal);
        tokio::select! {
            status = child.wait() => return describe(status),
            () = sleep(grace_period) => {
                let name = &self.spec.name;
                print_progress(&format!("{name} does not end within {} s", grace_period.as_secs()));
            }
            _ = self.is_urgent.wait_for(|is_urgent| *is_urgent) => {}
        }
        send(&child, escalation);
        if let Ok(status) = timeout(KILL_DELAY, child.wait()).await {
            return describe(status);
        }
        send(&child, Signal::KILL);
        describe(child.wait().await)
    }
}

/// Waits until the child must stop, or its owner is dropped.
async fn wait_stopped(desired: &mut watch::Receiver<DesiredState>) {
    let _ = desired.wait_for(|state| *state == DesiredState::Stop).await;
}

/// Sends a signal to a child that was not reaped yet, so that its pid is still its own.
fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("it cannot be waited for: {error}"),
    }
}
