//! Lets the statements of two requests pass one at a time, as a schedule says. Each request has an
//! instance for itself; what that sends also while it has no request is not scheduled.
//!
//! Neither is what happens between two statements: a request that waits for the other in its own
//! process, or for Redis, is silent, and the other one goes on.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_services::Exchange;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::schedule::Schedule;
use super::sql::{fingerprint, is_scheduled};

/// A statement without an answer for so long may wait for a lock; then it is asked so often.
const SOON: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(10);
/// A request that does nothing for so long, and for so many times its longest pause alone, waits
/// for something that is not seen.
const SILENCE: Duration = Duration::from_millis(50);
const SILENCE_OF_PAUSES: u32 = 4;
/// The silence until a pause is known.
const FIRST_SILENCE: Duration = Duration::from_secs(1);
/// Neither request has gone on for so long.
const STUCK: Duration = Duration::from_secs(3);
/// A request that sends one statement so often while the other does nothing waits for it in a loop.
const SPINS: usize = 3;

/// The statements of two requests that are under way.
#[derive(Debug, Default)]
pub(super) struct Steps {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    requests: [RequestState; 2],
    /// Statements that are sent without a request.
    of_nobody: HashSet<String>,
    /// Those that passed; and with their values, those since the other request had one.
    passed: Vec<Passed>,
    alone: Vec<Values>,
    /// The longest time between an answer and the next statement of a request.
    longest_pause: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Off,
    /// There are no requests.
    Idle,
    On,
}

/// The texts and the values of statements.
type Values = Vec<(Arc<str>, Vec<Option<String>>)>;

/// What a request has sent at once, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    /// 0 or 1.
    pub(super) request: usize,
    pub(super) statement: String,
}

#[derive(Debug, Default)]
struct RequestState {
    held: VecDeque<Held>,
    /// Connections with a statement that has no answer.
    running: HashSet<u64>,
    has_ended: bool,
    /// Since the last answer.
    thinks_since: Option<Instant>,
    /// It has done nothing for long, and nothing since.
    is_silent: bool,
}

#[derive(Debug)]
struct Held {
    connection: u64,
    statement: String,
    values: Values,
    go: oneshot::Sender<()>,
}

/// What a request is found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Held,
    Ended,
    /// It waits for the other request, or for something that is not seen.
    Waits,
}

impl Steps {
    /// Begins to note what is sent without a request.
    pub(super) fn begin_idle(&self) {
        self.state.lock().mode = Mode::Idle;
    }

    /// Begins to hold the statements of two requests.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.requests = <[RequestState; 2]>::default();
        state.passed.clear();
        state.alone.clear();
        state.mode = Mode::On;
    }

    /// Lets everything pass, and returns what has passed since the begin.
    pub(super) fn end(&self) -> Vec<Passed> {
        let mut state = self.state.lock();
        state.mode = Mode::Off;
        // Those that are held go on when their senders are dropped.
        state.requests = <[RequestState; 2]>::default();
        std::mem::take(&mut state.passed)
    }

    /// A request was answered.
    pub(super) fn end_request(&self, request: usize) {
        self.state.lock().requests[request].has_ended = true;
        self.changed.notify_one();
    }

    /// An instance wants to send statements, which wait for what is returned.
    pub(super) fn hold(
        &self,
        instance: usize,
        exchanges: &[Exchange],
    ) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        let State { mode, requests, of_nobody, passed, longest_pause, .. } = &mut *state;
        if *mode == Mode::Off {
            return None;
        }
        let connection = exchanges.first()?.connection;
        let statement = scheduled(exchanges)?;
        match mode {
            Mode::Idle => {
                of_nobody.insert(statement);
                return None;
            }
            Mode::On if of_nobody.contains(&statement) => return None,
            Mode::On | Mode::Off => {}
        }

        let request = requests.get_mut(instance).filter(|request| !request.has_ended)?;
        let pause = request.thinks_since.take().map(|since| since.elapsed());
        // Otherwise it may have waited for the other one.
        let is_alone = passed.last().is_some_and(|passed| passed.request == instance);
        if let Some(pause) = pause.filter(|_| is_alone) {
            *longest_pause = pause.max(*longest_pause);
        }
        request.is_silent = false;
        let (go, goes) = oneshot::channel();
        let values = exchanges.iter().flat_map(|exchange| &exchange.statements);
        let values = values.map(|it| (Arc::clone(&it.text), it.values.clone())).collect();
        request.held.push_back(Held { connection, statement, values, go });
        self.changed.notify_one();
        Some(goes)
    }

    /// The server has answered an instance.
    pub(super) fn answered(&self, instance: usize, exchange: &Exchange) {
        let mut state = self.state.lock();
        let Some(request) = state.requests.get_mut(instance) else { return };
        if request.running.remove(&exchange.connection) {
            request.thinks_since = Some(Instant::now());
            request.is_silent = false;
            self.changed.notify_one();
        }
    }

    /// Lets the statements pass as the schedule says, until both requests have ended. Returns
    /// whether they have: not, if neither goes on. `count_waiting` returns how many statements wait
    /// for a lock.
    pub(super) async fn follow(
        &self,
        schedule: &Schedule,
        mut count_waiting: impl AsyncFnMut() -> anyhow::Result<usize>,
    ) -> anyhow::Result<bool> {
        let mut turn = schedule.first;
        let mut switches = schedule.switches.iter().copied();
        let mut left = switches.next();
        let mut moved_at = Instant::now();
        loop {
            let own = self.settle(turn, &mut count_waiting).await?;
            let is_spinning = own == Settled::Held && self.is_spinning(turn);
            let other = match own {
                Settled::Held if !is_spinning => Settled::Waits,
                _ => self.settle(1 - turn, &mut count_waiting).await?,
            };
            let next = match (own, other) {
                (Settled::Ended, Settled::Ended) => return Ok(true),
                (_, Settled::Held) => 1 - turn,
                (Settled::Held, _) => turn,
                _ if moved_at.elapsed() > STUCK => return Ok(false),
                _ => {
                    let _ = timeout(INTERVAL, self.changed.notified()).await;
                    continue;
                }
            };

            self.pass(next);
            moved_at = Instant::now();
            // Its answer; and what goes on with it.
            self.settle(next, &mut count_waiting).await?;
            if self.is_running(1 - next) {
                self.settle(1 - next, &mut count_waiting).await?;
            }
            if next == turn {
                left = left.map(|left| left - 1);
            }
            if left == Some(0) {
                turn = 1 - turn;
                left = switches.next();
            }
        }
    }

    /// Lets the next statement of a request pass.
    fn pass(&self, request: usize) {
        let mut state = self.state.lock();
        let State { requests, passed, alone, .. } = &mut *state;
        let Some(held) = requests[request].held.pop_front() else { return };
        let Held { connection, statement, values, go } = held;
        // Otherwise the instance has closed the connection meanwhile.
        if go.send(()).is_ok() {
            requests[request].running.insert(connection);
            if passed.last().is_some_and(|last| last.request != request) {
                alone.clear();
            }
            alone.push(values);
            passed.push(Passed { request, statement });
        }
    }

    fn is_running(&self, request: usize) -> bool {
        !self.state.lock().requests[request].running.is_empty()
    }

    /// Returns whether a request is about to send what it has sent several times while the other
    /// did nothing.
    fn is_spinning(&self, request: usize) -> bool {
        let state = self.state.lock();
        let Some(held) = state.requests[request].held.front() else { return false };
        let is_alone = state.passed.last().is_some_and(|last| last.request == request);
        is_alone && state.alone.iter().filter(|values| **values == held.values).count() >= SPINS
    }

    /// Waits until a request holds a statement, has ended, or does not go on.
    async fn settle(
        &self,
        number: usize,
        count_waiting: &mut impl AsyncFnMut() -> anyhow::Result<usize>,
    ) -> anyhow::Result<Settled> {
        let since = Instant::now();
        loop {
            let (is_running, others) = {
                let mut state = self.state.lock();
                let silence = match state.longest_pause {
                    Duration::ZERO => FIRST_SILENCE,
                    pause => SILENCE.max(SILENCE_OF_PAUSES * pause).min(FIRST_SILENCE),
                };
                let others = state.requests[1 - number].running.len();
                let request = &mut state.requests[number];
                let is_running = !request.running.is_empty();
                if !is_running && !request.held.is_empty() {
                    return Ok(Settled::Held);
                }
                if !is_running && request.has_ended {
                    return Ok(Settled::Ended);
                }
                // The server may take its time; that it waits for a lock is seen.
                let silence = if is_running { FIRST_SILENCE } else { silence };
                request.is_silent |= since.elapsed() > silence;
                if request.is_silent {
                    return Ok(Settled::Waits);
                }
                (is_running, others)
            };

            // What the other one has sent, and what has no answer yet, waits, too.
            if is_running && since.elapsed() >= SOON && count_waiting().await? > others {
                return Ok(Settled::Waits);
            }
            let pause = if since.elapsed() < SOON { SOON } else { INTERVAL };
            let _ = timeout(pause, self.changed.notified()).await;
        }
    }
}

/// Returns what a request sends at once, without its values; `None` if no switch is before it.
fn scheduled(exchanges: &[Exchange]) -> Option<String> {
    let statements = exchanges.iter().flat_map(|exchange| &exchange.statements);
    let fingerprints = statements.map(|statement| fingerprint(&statement.text));
    let scheduled: Vec<String> = fingerprints.filter(|it| is_scheduled(it)).collect();
    (!scheduled.is_empty()).then(|| scheduled.join("; "))
}
