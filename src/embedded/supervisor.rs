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
use super::progress;
use super::spawner::{Ending, Spawner, Spec, Started, tail};
use crate::clock::Backoff;

/// Backoff before restarts.
const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
/// A child that ran this long restarts without the accumulated backoff.
const STEADY: Duration = Duration::from_secs(10);
/// Time between the harsher signal and SIGKILL.
const HURRY_PATIENCE: Duration = Duration::from_secs(2);
/// Interval of readiness checks.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Supervised {
    name: String,
    log: PathBuf,
    log_from: u64,
    wish: watch::Sender<Wish>,
    signals: mpsc::UnboundedSender<Sending>,
    ended: watch::Receiver<Option<String>>,
}

/// A signal to send, and the channel that confirms it.
type Sending = (Signal, oneshot::Sender<()>);

/// Control of a child: pause, resume and kill. A killed child is restarted; at shutdown a paused
/// child is resumed first, so that it can exit.
#[derive(Debug, Clone)]
pub struct Hand {
    name: String,
    signals: mpsc::UnboundedSender<Sending>,
}

impl Hand {
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
        let (sent, told) = oneshot::channel();
        if self.signals.send((signal, sent)).is_ok() {
            let _ = told.await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// The child is starting: an exit is an error, not a crash.
    Start,
    Run,
    Stop,
}

struct Keeper {
    spec: Spec,
    spawner: Spawner,
    wish: watch::Receiver<Wish>,
    signals: mpsc::UnboundedReceiver<Sending>,
    hurry: watch::Receiver<bool>,
}

impl Supervised {
    /// Starts a child; `hurry` becomes true to cut the grace period of its shutdown short.
    pub(super) async fn start(
        spawner: &Spawner,
        spec: Spec,
        hurry: &watch::Receiver<bool>,
    ) -> Result<Self> {
        let started = spawner.start(&spec).await?;
        let (wish, wished) = watch::channel(Wish::Start);
        let (end, ended) = watch::channel(None);
        let (signals, signalled) = mpsc::unbounded_channel();
        let (name, log, log_from) = (spec.name.clone(), spec.log.clone(), started.log_from);
        let spawner = spawner.clone();
        let hurry = hurry.clone();
        let keeper = Keeper { spec, spawner, wish: wished, signals: signalled, hurry };
        tokio::spawn(async move {
            let how = keeper.keep(started).await;
            end.send_replace(Some(how));
        });
        Ok(Self { name, log, log_from, wish, signals, ended })
    }

    /// Waits until `probe` succeeds; from then on the child is restarted whenever it exits.
    pub(super) async fn ready(
        &self,
        limit: Duration,
        probe: impl AsyncFn() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let mut last = "it was not asked".to_owned();
        let probing = async {
            loop {
                match probe().await {
                    Ok(()) => break,
                    Err(said) => last = said,
                }
                sleep(PROBE_PAUSE).await;
            }
        };
        let outcome = tokio::select! {
            outcome = timeout(limit, probing) => outcome,
            error = self.given_up() => return Err(error),
        };
        if outcome.is_err() {
            let (name, log) = (self.name.clone(), self.log.clone());
            let (seconds, tail) = (limit.as_secs(), tail(&self.log, self.log_from));
            return Err(Error::NotReady { name, seconds, last, log, tail });
        }
        self.wish.send_replace(Wish::Run);
        Ok(())
    }

    /// Returns a control handle of the child.
    pub(super) fn hand(&self) -> Hand {
        Hand { name: self.name.clone(), signals: self.signals.clone() }
    }

    /// Waits until the child is no longer supervised, which is an error except after `stop`.
    pub(super) async fn given_up(&self) -> Error {
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
        self.wish.send_replace(Wish::Stop);
        let _ = self.ended.wait_for(Option::is_some).await;
    }
}

impl Keeper {
    /// Supervises the child until `stop`, or until it exits before it was ready; returns how it
    /// exited.
    async fn keep(mut self, first: Started) -> String {
        let mut current = first;
        let mut falls = 0;
        loop {
            let since = Instant::now();
            // Killed by the lab: no failure to investigate.
            let mut killed = false;
            let status = loop {
                tokio::select! {
                    status = current.child.wait() => break status,
                    () = stopped(&mut self.wish) => return self.end(current.child).await,
                    Some((signal, told)) = self.signals.recv() => {
                        send(&current.child, signal);
                        killed |= signal == Signal::KILL;
                        let _ = told.send(());
                    }
                }
            };
            let how = describe(status);
            if *self.wish.borrow() == Wish::Start {
                return how;
            }
            if since.elapsed() > STEADY {
                falls = 0;
            }
            let name = &self.spec.name;
            if killed {
                progress(&format!("the lab killed {name}, as its run wanted"));
            } else {
                let words = tail(&self.spec.log, current.log_from);
                progress(&format!("{name} ended ({how}); its last words:\n{words}"));
            }
            match self.restart(&mut falls).await {
                Some(started) => current = started,
                None => return how,
            }
        }
    }

    /// Restarts the child with backoff until that succeeds; `None` if it is stopped first.
    async fn restart(&mut self, falls: &mut u32) -> Option<Started> {
        loop {
            *falls += 1;
            let wait = PAUSES.after(*falls);
            progress(&format!("starting {} again in {:.1} s", self.spec.name, wait.as_secs_f64()));
            let over = Instant::now() + wait;
            loop {
                tokio::select! {
                    () = sleep_until(over) => break,
                    () = stopped(&mut self.wish) => return None,
                    // Meant for the process that has exited.
                    Some((_, told)) = self.signals.recv() => drop(told),
                }
            }
            match self.spawner.start(&self.spec).await {
                Ok(started) => {
                    let pid = started.child.id().unwrap_or_default();
                    progress(&format!("{} runs again (pid {pid})", self.spec.name));
                    return Some(started);
                }
                Err(error) => progress(&format!("{}: {error}", self.spec.name)),
            }
        }
    }

    /// Stops the child: sends its signal, then the harsher one, then SIGKILL.
    async fn end(&mut self, mut child: Child) -> String {
        let Ending { signal, patience, hurry, .. } = self.spec.ending;
        send(&child, Signal::CONT); // A paused process handles no signals.
        send(&child, signal);
        tokio::select! {
            status = child.wait() => return describe(status),
            () = sleep(patience) => {
                let name = &self.spec.name;
                progress(&format!("{name} does not end within {} s", patience.as_secs()));
            }
            _ = self.hurry.wait_for(|hurry| *hurry) => {}
        }
        send(&child, hurry);
        if let Ok(status) = timeout(HURRY_PATIENCE, child.wait()).await {
            return describe(status);
        }
        send(&child, Signal::KILL);
        describe(child.wait().await)
    }
}

/// Waits until the child must stop, or its owner is dropped.
async fn stopped(wish: &mut watch::Receiver<Wish>) {
    let _ = wish.wait_for(|wish| *wish == Wish::Stop).await;
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
