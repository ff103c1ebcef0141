//! One exploration: processes with callers that acquire, hold, are cancelled and release at random,
//! and the rules that hold in any order.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use super::server::{Faults, RedisStandIn};
use crate::fenced::{FencedGuard, Timing};
use crate::observer::{Event, Observer, Source};
use crate::redis::in_memory;
use crate::seeded::{self, Bug};
use crate::time::virtual_clock::{self, once_in, random, shuffled, stall_tasks, up_to};
use crate::time::{Instant, sleep, timeout};
use crate::{Error, LeaseId, LockKey, Locks, Redis, Released, Settings};

const PROCESSES: usize = 3;
const CALLERS_PER_PROCESS: usize = 3;
const ACQUISITIONS_PER_CALLER: usize = 4;
/// Longer than any exploration that ends.
const END: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which guards are asked whether they are held, beside the callers' own questions.
const CHECK_INTERVAL: Duration = Duration::from_millis(40);
/// Two calls of Redis, a connection, and stops of the tasks involved.
const LATENESS: Duration = Duration::from_secs(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing fails, and all times are long: no caller may need a poll, or the end of a lease.
    Calm,
    /// Responses are late, connections end, messages are lost, tasks are stopped for a while.
    Faulty,
    /// The same, and Redis loses the lock: then two may hold it for a while, by their clocks.
    Losing,
}

impl Mode {
    fn timing(self) -> Timing {
        let ms = Duration::from_millis;
        match self {
            Mode::Calm => Timing::default()
                .with_ttl(ms(30_000))
                .with_grant_ttl(ms(15_000))
                .with_poll_interval(ms(5_000)),
            _ => Timing::default().with_ttl(ms(900)),
        }
    }

    fn faults(self) -> Faults {
        let max_lateness = Duration::from_millis(1_200);
        match self {
            Mode::Calm => Faults::default(),
            Mode::Faulty => {
                Faults { late: 8, max_lateness, cut: 150, lost_message: 8, lost_lock: 0 }
            }
            Mode::Losing => Faults { lost_lock: 15, ..Mode::Faulty.faults() },
        }
    }

    fn max_hold(self) -> Duration {
        Duration::from_millis(if self == Mode::Calm { 5 } else { 600 })
    }

    /// Often no caller waits, and often one does.
    fn max_pause(self) -> Duration {
        Duration::from_millis(if self == Mode::Calm { 80 } else { 1_200 })
    }

    /// After that, nothing is left of callers that have ended.
    fn time_to_settle(self) -> Duration {
        Duration::from_secs(if self == Mode::Calm { 2 } else { 12 })
    }
}

/// The events of an exploration, counted by name, and in order.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub counts: BTreeMap<&'static str, usize>,
    pub lines: Vec<String>,
}

/// Explores one order of events. Fails with the rule that was broken, and what happened before.
pub(super) fn explore(mode: Mode, seed: u64, bug: Option<Bug>) -> Result<Trace, String> {
    seeded::seed(bug);
    let board = Board::new(mode);
    virtual_clock::run(seed, run(mode, board.clone()));
    seeded::seed(None);

    let state = std::mem::take(&mut *board.0.lock());
    match state.violation {
        None => Ok(state.trace),
        Some(violation) => {
            let last = state.trace.lines.len().saturating_sub(60);
            let before = state.trace.lines[last..].join("\n");
            Err(format!("{before}\n{mode:?}, seed {seed}: {violation}"))
        }
    }
}

async fn run(mode: Mode, board: Board) {
    let server = RedisStandIn::default();
    let connecting = server.clone();
    in_memory::set(move || connecting.connect());

    let key = LockKey::new("{a}").expect("a key");
    let processes: Vec<Locks> = (0..PROCESSES)
        .map(|_| {
            let redis = Redis::open("redis://in-memory").expect("an address");
            let settings =
                Settings::default().with_fenced(mode.timing()).with_observer(board.clone());
            Locks::new(redis, settings).expect("valid settings")
        })
        .collect();
    while server.subscriptions() < PROCESSES {
        sleep(Duration::from_millis(1)).await;
    }

    server.set_faults(mode.faults());
    if mode != Mode::Calm {
        stall_tasks(200, Duration::from_millis(700));
    }
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..PROCESSES * CALLERS_PER_PROCESS {
        let locks = processes[number % PROCESSES].clone();
        let caller = RandomCaller { number, locks, key: key.clone(), board: board.clone(), mode };
        callers.spawn(shuffled(caller.run()));
    }
    let watching = board.clone();
    let watching = tokio::spawn(shuffled(async move {
        loop {
            sleep(CHECK_INTERVAL).await;
            watching.check();
        }
    }));
    if once_in(2) {
        sleep(up_to(mode.max_hold() * 20)).await;
        board.note("close", "close", String::new());
        if timeout(LATENESS, processes[0].close()).await.is_err() {
            board.violate("close hangs");
        }
    }

    let ending = async {
        while let Some(ended) = callers.join_next().await {
            ended.expect("a caller panicked");
        }
    };
    let ended = timeout(END, ending).await;
    if ended.is_err() {
        board.violate("a caller hangs");
    }
    stall_tasks(0, Duration::ZERO);
    server.set_faults(Faults::default());
    sleep(mode.time_to_settle()).await;
    watching.abort();
    if !server.is_untouched() {
        board.violate("the lock is held or waited for, and no caller is left");
    }
    if processes.iter().any(|locks| locks.is_in_use_here(&key)) {
        board.violate("an actor is left, and no caller");
    }
}

struct RandomCaller {
    number: usize,
    locks: Locks,
    key: LockKey,
    board: Board,
    mode: Mode,
}

impl RandomCaller {
    async fn run(self) {
        for _ in 0..ACQUISITIONS_PER_CALLER {
            sleep(up_to(self.mode.max_pause())).await;

            let started = Instant::now();
            let acquired = if once_in(4) {
                let trying = async { self.locks.try_lock(&self.key).await };
                self.unless_cancelled("try", trying).await
            } else {
                let waiting = async { self.locks.lock_for(&self.key, PATIENCE).await.map(Some) };
                self.unless_cancelled("lock", waiting).await
            };
            if started.elapsed() > PATIENCE + LATENESS {
                self.board.violate("a caller waited for longer than it wanted");
            }

            match acquired {
                Some(Ok(Some(guard))) => self.hold(guard).await,
                Some(Ok(None)) => self.note("busy"),
                Some(Err(Error::Closed)) => return self.note("closed"),
                Some(Err(error)) if self.mode == Mode::Calm => {
                    self.board.violate(&format!("an error without a fault: {error}"));
                }
                Some(Err(_)) => self.note("error"),
                None => self.note("cancelled"),
            }
        }
    }

    async fn hold(&self, mut guard: FencedGuard) {
        self.note("acquired");
        let place = self.board.enter(self.number, &guard);
        for _ in 0..2 {
            sleep(up_to(self.mode.max_hold())).await;
            self.board.check();
        }
        if once_in(8) {
            let raised = guard.raise_fence(guard.fence() + 1).await;
            self.board.check();
            if let Ok(Some(_)) = raised {
                self.note("raised");
            }
        }
        drop(place);

        if once_in(4) {
            drop(guard);
            return self.note("dropped");
        }
        if self.mode != Mode::Calm && once_in(6) {
            guard.leave_to_expire();
            return self.note("left to expire");
        }
        match self.unless_cancelled("release", guard.release()).await {
            Some(Released::Held) => self.note("released"),
            Some(Released::Unknown) => self.note("unknown"),
            Some(Released::Lost) => {
                self.note("lost");
                if self.mode == Mode::Calm && !self.board.is_closing() {
                    self.board.violate("a lock was lost without a fault");
                }
            }
            None => self.note("release cancelled"),
        }
    }

    /// Drops the future, once in three times: at a random await, when it is pending or when it is
    /// woken and its result is ready, or at any time between.
    async fn unless_cancelled<F: Future>(&self, what: &str, future: F) -> Option<F::Output> {
        if once_in(6) {
            // Within a call of Redis, or within the wait.
            let time = up_to(self.mode.max_hold() * if once_in(2) { 1 } else { 4 });
            return timeout(time, future).await.ok();
        }
        let cut = once_in(6).then(|| (random(0.0..5.0).unwrap_or(0.0), once_in(2)));
        let mut future = pin!(future);
        let mut polls = 0.0;
        let output = poll_fn(|context| {
            if cut.is_some_and(|(after, _)| polls > after) {
                return Poll::Ready(None);
            }
            polls += 1.0;
            let polled = future.as_mut().poll(context).map(Some);
            match cut {
                Some((after, true)) if polls > after && polled.is_pending() => Poll::Ready(None),
                _ => polled,
            }
        });
        let output = output.await;
        let end = if output.is_some() { "done" } else { "cancelled" };
        self.board.note("await", what, format!("caller {}: {end}", self.number));
        output
    }

    fn note(&self, what: &'static str) {
        self.board.note(what, what, format!("caller {}", self.number));
    }
}

/// The callers that believe to hold the lock, and the rules.
#[derive(Clone)]
struct Board(Arc<Mutex<BoardState>>);

#[derive(Default)]
struct BoardState {
    mode: Option<Mode>,
    holders: Vec<BoardHolder>,
    last_fence: i64,
    is_closing: bool,
    violation: Option<String>,
    trace: Trace,
}

struct BoardHolder {
    number: usize,
    lease: LeaseId,
    is_held: Box<dyn Fn() -> bool + Send>,
    was_lost: bool,
}

/// A holder; no longer one when it is dropped.
struct Place<'a>(&'a Board, usize);

impl Board {
    fn new(mode: Mode) -> Self {
        Self(Arc::new(Mutex::new(BoardState { mode: Some(mode), ..BoardState::default() })))
    }

    fn note(&self, count: &'static str, what: &str, about: String) {
        let mut state = self.0.lock();
        state.is_closing |= what == "close";
        *state.trace.counts.entry(count).or_default() += 1;
        let now_us = virtual_clock::now_us().unwrap_or(0);
        let line = format!("{now_us:>10} µs: {what} {about}");
        if std::env::var_os("HOLDFAST_TEST_SEED").is_some() {
            println!("{line}");
        }
        state.trace.lines.push(line);
    }

    fn is_closing(&self) -> bool {
        self.0.lock().is_closing
    }

    fn violate(&self, rule: &str) {
        self.0.lock().violation.get_or_insert_with(|| rule.to_owned());
    }

    fn enter(&self, number: usize, guard: &FencedGuard) -> Place<'_> {
        let mut state = self.0.lock();
        let (fence, is_held) = (guard.fence(), guard.is_held());
        let excludes = state.mode != Some(Mode::Losing);
        if excludes && is_held && fence <= state.last_fence {
            state.violation.get_or_insert_with(|| format!("fence {fence} is not a new one"));
        }
        state.last_fence = state.last_fence.max(fence);
        let is_held = Box::new(guard.is_held_later());
        let lease = guard.lease_id();
        if state.holders.iter().any(|other| other.lease == lease) {
            state.violation.get_or_insert_with(|| "two callers have one lease".to_owned());
        }
        state.holders.push(BoardHolder { number, lease, is_held, was_lost: false });
        drop(state);
        self.check();
        Place(self, number)
    }

    /// Checks that no two callers hold the lock, and that a lost lock is not held again.
    fn check(&self) {
        let mut state = self.0.lock();
        let excludes = state.mode != Some(Mode::Losing);
        let (mut held_by, mut revived) = (Vec::new(), false);
        for holder in &mut state.holders {
            let is_held = (holder.is_held)();
            revived |= is_held && holder.was_lost;
            holder.was_lost |= !is_held;
            if is_held {
                held_by.push(holder.number);
            }
        }
        if revived {
            state.violation.get_or_insert_with(|| "a lost lock was held again".to_owned());
        }
        if excludes && held_by.len() > 1 {
            state.violation.get_or_insert_with(|| format!("callers {held_by:?} hold the lock"));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Place(board, number) = self;
        board.0.lock().holders.retain(|holder| holder.number != *number);
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Observer for Board {
    fn observe(&self, event: Event) {
        let name = match event {
            Event::Acquired { source, .. } => source.name(),
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "found lost",
            _ => return,
        };
        self.note(name, name, String::new());
        let is_calm = self.0.lock().mode == Some(Mode::Calm);
        if is_calm && matches!(event, Event::Acquired { source: Source::Poll, .. }) {
            self.violate("a waiter was not woken: only a poll found the lock granted");
        }
    }
}
