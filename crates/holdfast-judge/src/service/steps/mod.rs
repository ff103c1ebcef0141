//! Lets the statements of two requests, and their commands to Redis, pass one at a time, as a
//! schedule says. Each request has an instance for itself; what that sends also while it has no
//! request is not scheduled.
//!
//! Neither is what happens between two statements. Postgres says whether a request waits for the
//! other one. One that waits for Redis, as in a `BLPOP` or asleep until it asks for a lock again,
//! or for something in its own process, is silent, and the other one goes on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use holdfast_services::{Exchange, ServerKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::schedule::Schedule;
use super::sent::SentStatements;
use super::sql::ends_transaction;

/// A statement without an answer for so long may wait for a lock; then it is asked so often.
const SOON: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(10);
/// A request that does nothing for this time, and for a multiple of its longest pause alone, waits
/// for something that is not seen.
const SILENCE: Duration = Duration::from_millis(50);
const SILENCE_OF_PAUSES: u32 = 4;
/// The silence until a pause is known, and before the first statement of a request.
const FIRST_SILENCE: Duration = Duration::from_secs(1);
/// Neither request has gone on for so long.
const STUCK: Duration = Duration::from_secs(3);
/// A request that sends one statement so often while the other does nothing waits for it in a loop.
const SPINS: usize = 3;
/// A patient schedule keeps the other one back for this time in all, and for this number of tries:
/// a timeout, or the last try, may end the wait. No loop may outlast the lease of a lock in Redis.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENT_SPINS: usize = 10;

/// The statements of two requests that are under way.
#[derive(Debug, Default)]
pub(super) struct Steps {
    state: Mutex<StepsState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct StepsState {
    mode: StepMode,
    requests: [RequestState; 2],
    /// Statements that are sent without a request, and commands with their keys. Not the ends of
    /// transactions, which orders have, too.
    of_nobody: HashSet<String>,
    passed: Vec<Passed>,
    /// The longest time between an answer and the next statement of a request.
    longest_pause: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum StepMode {
    #[default]
    Off,
    /// There are no requests.
    Idle,
    On,
}

/// A connection of an instance. Those to each server are counted for themselves.
type ConnectionKey = (ServerKind, u64);

/// The statements that a request has sent at once, without their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    /// 0 or 1.
    pub(super) request: usize,
    pub(super) statement: String,
}

#[derive(Debug, Default)]
struct RequestState {
    held: VecDeque<HeldStatement>,
    /// The statements without an answer, of each connection.
    running: HashMap<ConnectionKey, RunningStatement>,
    /// Connections with a transaction in which something was scheduled.
    open: HashSet<ConnectionKey>,
    has_ended: bool,
    /// Since the last answer.
    thinks_since: Option<Instant>,
    /// It has done nothing for long, and nothing since.
    is_silent: bool,
    /// The statements that have passed since the other one last did what it may wait for.
    alone: Vec<SentStatements>,
    /// The other one has just done that in Redis; nothing has passed since.
    is_freed: bool,
}

#[derive(Debug)]
struct HeldStatement {
    connection: ConnectionKey,
    running: RunningStatement,
    statement: String,
    sent: SentStatements,
    go: oneshot::Sender<()>,
}

/// Statements that pass at once.
#[derive(Debug, Clone, Copy)]
struct RunningStatement {
    /// The server's process that executes it.
    backend: i32,
    /// Number of the exchange whose answer is the last one.
    last: u64,
    /// It may be a command that waits, and no server says whether it does.
    may_wait: bool,
}

/// The state in which a request is found.
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
        self.state.lock().mode = StepMode::Idle;
    }

    /// Begins to hold the statements of two requests.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.requests = <[RequestState; 2]>::default();
        state.passed.clear();
        state.mode = StepMode::On;
    }

    /// Lets everything pass, and returns what has passed since the begin.
    pub(super) fn end(&self) -> Vec<Passed> {
        let mut state = self.state.lock();
        state.mode = StepMode::Off;
        // Those that are held go on when their senders are dropped.
        state.requests = <[RequestState; 2]>::default();
        std::mem::take(&mut state.passed)
    }

    /// Returns whether all of these are what is sent without a request; of transactions, with
    /// their ends.
    pub(super) fn are_of_nobody<'a>(
        &self,
        exchanges: impl IntoIterator<Item = &'a Exchange>,
    ) -> bool {
        let state = self.state.lock();
        // That is known in some passes only.
        if state.of_nobody.is_empty() {
            return false;
        }
        let mut sent = exchanges.into_iter().filter_map(|exchange| {
            let sent = SentStatements::of([exchange]);
            let name = sent.name()?;
            Some(sent.name_with_keys(&name))
        });
        sent.all(|it| ends_transaction(&it) || state.of_nobody.contains(&it))
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
        let StepsState { mode, requests, of_nobody, passed, longest_pause } = &mut *state;
        if *mode == StepMode::Off {
            return None;
        }
        let Exchange { server, connection, backend, number: last, .. } = *exchanges.last()?;
        let connection = (server, connection);
        let sent = SentStatements::of(exchanges);
        let statement = sent.name()?;
        let with_keys = sent.name_with_keys(&statement);
        let is_end = ends_transaction(&statement);
        match mode {
            StepMode::Idle if is_end => return None,
            StepMode::Idle => {
                of_nobody.insert(with_keys);
                return None;
            }
            StepMode::On if of_nobody.contains(&with_keys) => return None,
            StepMode::On | StepMode::Off => {}
        }

        let request = requests.get_mut(instance).filter(|request| !request.has_ended)?;
        let is_open = request.open.contains(&connection);
        if is_end && !is_open {
            return None;
        }
        request.open.insert(connection);
        let pause = request.thinks_since.take().map(|since| since.elapsed());
        // Otherwise it may have waited for the other one.
        let is_alone = passed.last().is_some_and(|passed| passed.request == instance);
        if let Some(pause) = pause.filter(|_| is_alone && !request.asks_again(&sent)) {
            *longest_pause = pause.max(*longest_pause);
        }
        request.is_silent = false;
        let (go, goes) = oneshot::channel();
        let running = RunningStatement { backend, last, may_wait: sent.may_wait() };
        request.held.push_back(HeldStatement { connection, running, statement, sent, go });
        self.changed.notify_one();
        Some(goes)
    }

    /// The server has answered an instance.
    pub(super) fn answered(&self, instance: usize, exchange: &Exchange) {
        let mut state = self.state.lock();
        let Some(request) = state.requests.get_mut(instance) else { return };
        let connection = (exchange.server, exchange.connection);
        if !exchange.in_transaction {
            request.open.remove(&connection);
        }
        let running = request.running.get(&connection);
        if running.is_some_and(|running| running.last <= exchange.number) {
            request.end_running(connection);
            self.changed.notify_one();
        }
    }

    /// A connection of an instance was closed.
    pub(super) fn closed(&self, instance: usize, server: ServerKind, connection: u64) {
        let mut state = self.state.lock();
        let Some(request) = state.requests.get_mut(instance) else { return };
        let connection = (server, connection);
        request.held.retain(|held| held.connection != connection);
        request.open.remove(&connection);
        request.end_running(connection);
        self.changed.notify_one();
    }

    /// Lets the statements pass as the schedule says, until both requests have ended. Returns
    /// whether they have: not, if neither goes on. `are_waiting` returns whether any of the
    /// server's processes waits for a lock.
    pub(super) async fn follow(
        &self,
        schedule: &Schedule,
        mut are_waiting: impl AsyncFnMut(Vec<i32>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let mut turn = schedule.first;
        let mut switches = schedule.switches.iter().copied();
        let mut left = switches.next();
        let mut moved_at = Instant::now();
        let spins = if schedule.patient { PATIENT_SPINS } else { SPINS };
        let mut patient_until = None;
        loop {
            let own = self.settle(turn, &mut are_waiting).await?;
            let is_spinning = own == Settled::Held && self.is_spinning(turn, spins);
            let other = match own {
                Settled::Held if !is_spinning => Settled::Waits,
                _ => self.settle(1 - turn, &mut are_waiting).await?,
            };
            if schedule.patient && (own, other) == (Settled::Waits, Settled::Held) {
                let until = *patient_until.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() < until {
                    let _ = timeout(INTERVAL, self.changed.notified()).await;
                    continue;
                }
            }

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

            let counts = self.pass(next);
            moved_at = Instant::now();
            // Its answer; and what goes on with it.
            self.settle(next, &mut are_waiting).await?;
            if self.is_running(1 - next) {
                self.settle(1 - next, &mut are_waiting).await?;
            }
            if counts && next == turn {
                left = left.map(|left| left - 1);
            }
            if left == Some(0) {
                turn = 1 - turn;
                left = switches.next();
            }
        }
    }

    /// Lets the next statement of a request pass. Returns whether it counts: how often a request
    /// asks Redis for the same until it gets it depends on how long it sleeps in between.
    fn pass(&self, request: usize) -> bool {
        let mut state = self.state.lock();
        let StepsState { requests: [first, second], passed, .. } = &mut *state;
        let (own, other) = if request == 0 { (first, second) } else { (second, first) };
        let Some(held) = own.held.pop_front() else { return false };
        let HeldStatement { connection, running, statement, sent, go } = held;
        // Otherwise the instance has closed the connection since.
        if go.send(()).is_err() {
            return false;
        }

        own.running.insert(connection, running);
        other.free(&sent);
        let counts = !own.asks_again(&sent);
        own.is_freed = false;
        // A loop is about one server.
        own.alone.retain(|earlier| earlier.server == sent.server);
        own.alone.push(sent);
        if counts {
            passed.push(Passed { request, statement });
        }
        counts
    }

    fn is_running(&self, request: usize) -> bool {
        !self.state.lock().requests[request].running.is_empty()
    }

    /// Returns whether a request is about to send what it has sent so often while the other did
    /// nothing that it may wait for.
    fn is_spinning(&self, request: usize, spins: usize) -> bool {
        let state = self.state.lock();
        let RequestState { held, alone, .. } = &state.requests[request];
        let Some(held) = held.front() else { return false };
        alone.iter().filter(|earlier| held.sent.repeats(earlier)).count() >= spins
    }

    /// Waits until a request holds a statement, has ended, or does not go on.
    async fn settle(
        &self,
        number: usize,
        are_waiting: &mut impl AsyncFnMut(Vec<i32>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Settled> {
        let since = Instant::now();
        loop {
            let (backends, waits) = {
                let mut state = self.state.lock();
                let silence = match state.longest_pause {
                    Duration::ZERO => FIRST_SILENCE,
                    pause => SILENCE.max(SILENCE_OF_PAUSES * pause).min(FIRST_SILENCE),
                };
                let request = &mut state.requests[number];
                let is_running = !request.running.is_empty();
                // What it sends on another connection may be what it waits for.
                let waits = match request.held.is_empty() {
                    true => Settled::Waits,
                    false => Settled::Held,
                };
                if !is_running && !request.held.is_empty() {
                    return Ok(Settled::Held);
                }
                if !is_running && request.has_ended {
                    return Ok(Settled::Ended);
                }
                // The server may take its time; that it waits for a lock is seen in Postgres. One
                // that is freed may sleep before it asks again. One that is slow to begin has its
                // turn all the same.
                let takes_time = request.running.values().any(|running| !running.may_wait);
                let has_begun = is_running || request.thinks_since.is_some();
                let is_slow = takes_time || request.is_freed || !has_begun;
                let silence = if is_slow { FIRST_SILENCE } else { silence };
                request.is_silent |= since.elapsed() > silence;
                if request.is_silent {
                    return Ok(waits);
                }
                let running = request.running.iter();
                let running = running.filter(|((server, _), _)| *server == ServerKind::Postgres);
                (running.map(|(_, running)| running.backend).collect::<Vec<_>>(), waits)
            };

            let may_wait = !backends.is_empty() && since.elapsed() >= SOON;
            if may_wait && are_waiting(backends).await? {
                return Ok(waits);
            }
            let pause = if since.elapsed() < SOON { SOON } else { INTERVAL };
            let _ = timeout(pause, self.changed.notified()).await;
        }
    }
}

impl RequestState {
    /// Nothing more is answered on a connection.
    fn end_running(&mut self, connection: ConnectionKey) {
        if self.running.remove(&connection).is_some() {
            self.thinks_since = Some(Instant::now());
            self.is_silent = false;
        }
    }

    /// Returns whether it asks Redis for what it has just asked for.
    fn asks_again(&self, sent: &SentStatements) -> bool {
        let last = self.alone.last().filter(|last| last.server == ServerKind::Redis);
        last.is_some_and(|last| sent.repeats(last))
    }

    /// The other request sends something.
    fn free(&mut self, sent: &SentStatements) {
        let waiting = self.alone.len();
        self.alone.retain(|earlier| !sent.may_free(earlier));
        if sent.server == ServerKind::Redis && self.alone.len() < waiting {
            (self.is_freed, self.is_silent) = (true, false);
        }
    }
}

#[cfg(test)]
mod tests;
