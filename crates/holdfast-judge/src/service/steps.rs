//! Lets the statements of two requests pass one at a time, as a schedule says. Each request has an
//! instance for itself; what that sends also while it has no request is not scheduled.
//!
//! Neither is what happens between two statements: a request that waits for the other in its own
//! process, or for Redis, is silent, and the other one goes on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_services::Exchange;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::schedule::Schedule;
use super::sql::{ends_transaction, fingerprint, is_scheduled};

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
    /// Statements that are sent without a request. Not the ends of transactions, which orders
    /// have, too.
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
    /// What has no answer, of each connection.
    running: HashMap<u64, Running>,
    /// Connections with a transaction in which something was scheduled.
    open: HashSet<u64>,
    has_ended: bool,
    /// Since the last answer.
    thinks_since: Option<Instant>,
    /// It has done nothing for long, and nothing since.
    is_silent: bool,
}

#[derive(Debug)]
struct Held {
    connection: u64,
    running: Running,
    statement: String,
    values: Values,
    go: oneshot::Sender<()>,
}

/// What passes at once.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// The server's process that executes it.
    backend: i32,
    /// Number of the exchange whose answer is the last one.
    last: u64,
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
        let mut sent = exchanges.into_iter().filter_map(|exchange| scheduled([exchange]));
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
        let State { mode, requests, of_nobody, passed, longest_pause, .. } = &mut *state;
        if *mode == Mode::Off {
            return None;
        }
        let Exchange { connection, backend, number: last, .. } = *exchanges.last()?;
        let statement = scheduled(exchanges)?;
        let is_end = ends_transaction(&statement);
        match mode {
            Mode::Idle if is_end => return None,
            Mode::Idle => {
                of_nobody.insert(statement);
                return None;
            }
            Mode::On if of_nobody.contains(&statement) => return None,
            Mode::On | Mode::Off => {}
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
        if let Some(pause) = pause.filter(|_| is_alone) {
            *longest_pause = pause.max(*longest_pause);
        }
        request.is_silent = false;
        let (go, goes) = oneshot::channel();
        let values = exchanges.iter().flat_map(|exchange| &exchange.statements);
        let values = values.map(|it| (Arc::clone(&it.text), it.values.clone())).collect();
        let running = Running { backend, last };
        request.held.push_back(Held { connection, running, statement, values, go });
        self.changed.notify_one();
        Some(goes)
    }

    /// The server has answered an instance.
    pub(super) fn answered(&self, instance: usize, exchange: &Exchange) {
        let mut state = self.state.lock();
        let Some(request) = state.requests.get_mut(instance) else { return };
        if !exchange.in_transaction {
            request.open.remove(&exchange.connection);
        }
        let running = request.running.get(&exchange.connection);
        if running.is_some_and(|running| running.last <= exchange.number) {
            request.end_running(exchange.connection);
            self.changed.notify_one();
        }
    }

    /// A connection of an instance was closed.
    pub(super) fn closed(&self, instance: usize, connection: u64) {
        let mut state = self.state.lock();
        let Some(request) = state.requests.get_mut(instance) else { return };
        request.held.retain(|held| held.connection != connection);
        request.open.remove(&connection);
        request.end_running(connection);
        self.changed.notify_one();
    }

    /// Lets the statements pass as the schedule says, until both requests have ended. Returns
    /// whether they have: not, if neither goes on. `are_waiting` returns whether any of the server's
    /// processes waits for a lock.
    pub(super) async fn follow(
        &self,
        schedule: &Schedule,
        mut are_waiting: impl AsyncFnMut(Vec<i32>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let mut turn = schedule.first;
        let mut switches = schedule.switches.iter().copied();
        let mut left = switches.next();
        let mut moved_at = Instant::now();
        loop {
            let own = self.settle(turn, &mut are_waiting).await?;
            let is_spinning = own == Settled::Held && self.is_spinning(turn);
            let other = match own {
                Settled::Held if !is_spinning => Settled::Waits,
                _ => self.settle(1 - turn, &mut are_waiting).await?,
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
            self.settle(next, &mut are_waiting).await?;
            if self.is_running(1 - next) {
                self.settle(1 - next, &mut are_waiting).await?;
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
        let Held { connection, running, statement, values, go } = held;
        // Otherwise the instance has closed the connection meanwhile.
        if go.send(()).is_ok() {
            requests[request].running.insert(connection, running);
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
                // What it sends meanwhile, on another connection, may be what it waits for.
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
                // The server may take its time; that it waits for a lock is seen.
                let silence = if is_running { FIRST_SILENCE } else { silence };
                request.is_silent |= since.elapsed() > silence;
                if request.is_silent {
                    return Ok(waits);
                }
                let running = request.running.values();
                (running.map(|running| running.backend).collect::<Vec<_>>(), waits)
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
    fn end_running(&mut self, connection: u64) {
        if self.running.remove(&connection).is_some() {
            self.thinks_since = Some(Instant::now());
            self.is_silent = false;
        }
    }
}

/// Returns what a request sends at once, without its values; `None` if no switch is before it.
fn scheduled<'a>(exchanges: impl IntoIterator<Item = &'a Exchange>) -> Option<String> {
    let statements = exchanges.into_iter().flat_map(|exchange| &exchange.statements);
    let fingerprints = statements.map(|statement| fingerprint(&statement.text));
    let scheduled: Vec<String> = fingerprints.filter(|it| is_scheduled(it)).collect();
    (!scheduled.is_empty()).then(|| scheduled.join("; "))
}

#[cfg(test)]
mod tests {
    use futures_util::future::{join, join3};
    use holdfast_services::Statement;

    use super::*;

    const READ: &str = "select stock from goods";
    const WRITE: &str = "update goods set stock = 0";

    /// Returns an exchange on the connection of its instance's backend of the same number.
    fn exchange(connection: u64, number: u64, text: &str) -> Exchange {
        let mut exchange = Exchange::default();
        (exchange.connection, exchange.number) = (connection, number);
        exchange.backend = i32::try_from(connection).expect("a small number");
        exchange.in_transaction = text != "commit";
        exchange.statements = vec![Statement { text: text.into(), ..Statement::default() }];
        exchange
    }

    /// Sends statements on one connection, each when the last one was answered. `answer` ends with
    /// the answer of one.
    async fn send(
        steps: &Steps,
        request: usize,
        texts: &[&str],
        mut answer: impl AsyncFnMut(&str),
    ) {
        for (number, text) in (0..).zip(texts) {
            let sent = exchange(request as u64 + 1, number, text);
            steps
                .hold(request, std::slice::from_ref(&sent))
                .expect("it is scheduled")
                .await
                .expect("it goes");
            answer(text).await;
            steps.answered(request, &sent);
        }
        steps.end_request(request);
    }

    fn requests(passed: &[Passed]) -> Vec<usize> {
        passed.iter().map(|passed| passed.request).collect()
    }

    #[tokio::test]
    async fn statements_pass_as_the_schedule_says() {
        for (first, switches, expected) in [
            (0, vec![], [0, 0, 0, 1, 1, 1]),
            (0, vec![1], [0, 1, 1, 1, 0, 0]),
            (1, vec![1, 2], [1, 0, 0, 1, 1, 0]),
            (0, vec![1; 6], [0, 1, 0, 1, 0, 1]),
        ] {
            let steps = Steps::default();
            steps.begin();
            let schedule = Schedule { first, switches };
            let sending = [0, 1].map(|it| send(&steps, it, &[READ, WRITE, "commit"], async |_| {}));
            let [one, other] = sending;
            let following = steps.follow(&schedule, async |_| Ok(false));
            let (followed, ..) = join3(following, one, other).await;
            assert!(followed.expect("an end"));
            assert_eq!(requests(&steps.end()), expected, "{schedule:?}");
        }
    }

    /// Its write waits until the other one has committed; then it is its turn again.
    #[tokio::test]
    async fn request_that_waits_for_a_lock_lets_the_other_go_on() {
        let steps = Steps::default();
        steps.begin();
        let committed = Notify::new();
        let first = send(&steps, 0, &[WRITE, "commit"], async |text| {
            if text == "commit" {
                committed.notify_one();
            }
        });
        let second = send(&steps, 1, &[WRITE, "commit"], async |text| {
            if text == WRITE {
                committed.notified().await;
            }
        });
        let schedule = Schedule { first: 0, switches: vec![1] };
        let asked = Mutex::new(Vec::new());
        let following = steps.follow(&schedule, async |backends| {
            asked.lock().extend(backends.clone());
            Ok(backends == [2])
        });
        let (followed, ..) = join3(following, first, second).await;
        assert!(followed.expect("an end"));
        assert_eq!(requests(&steps.end()), [0, 1, 0, 1]);
        assert!(asked.lock().contains(&2));
    }

    #[tokio::test]
    async fn request_runs_until_its_last_answer_or_its_close() {
        let steps = Steps::default();
        steps.begin();
        let [read, write] = [exchange(1, 0, READ), exchange(1, 1, WRITE)];
        let held = steps.hold(0, &[read.clone(), write.clone()]).expect("it is scheduled");
        steps.pass(0);
        held.await.expect("it goes");
        steps.answered(0, &read);
        assert!(steps.is_running(0));
        steps.answered(0, &write);
        assert!(!steps.is_running(0));

        let held = steps.hold(0, &[exchange(1, 2, READ)]).expect("it is scheduled");
        steps.pass(0);
        held.await.expect("it goes");
        let waiting = steps.hold(0, &[exchange(1, 3, WRITE)]).expect("it is scheduled");
        steps.closed(0, 1);
        assert!(!steps.is_running(0));
        waiting.await.expect_err("its connection is closed");
    }

    /// A job commits, too.
    #[tokio::test]
    async fn what_is_sent_without_a_request_is_not_scheduled() {
        let steps = Steps::default();
        steps.begin_idle();
        for text in ["select job", "commit"] {
            assert!(steps.hold(0, &[exchange(9, 0, text)]).is_none());
        }
        steps.begin();
        let (own, of_job) = (exchange(1, 0, WRITE), exchange(9, 0, "select job"));
        assert!(steps.hold(0, &[of_job]).is_none());
        assert!(steps.hold(0, &[exchange(9, 1, "commit")]).is_none());
        let order = steps.hold(0, &[own]).expect("it is scheduled");
        assert!(steps.hold(0, &[exchange(1, 1, "commit")]).is_some());

        // At the end all go on.
        let (passed, _) = join(async { steps.end() }, order).await;
        assert!(passed.is_empty());
    }
}
