//! A command from the lock to the response, in the steps that a fault can come between.
//!
//! Each process executes one request: it acquires the lock, reads the row and its key records,
//! sends one guarded write, and reports each key as done or not done. The lock is the worst case: a
//! lease ends at any moment, replies of Redis arrive at any later time, a flush deletes the lock
//! and its fences. Key locks are not modelled: duplicates run concurrently. After a write was sent
//! the connection may be lost, and the process must resolve the outcome. A process without further
//! steps has crashed.
//!
//! Checked in every state: no lost update; writes come in the order of their fences; each key is
//! executed at most once; a key that was reported done is done; a key that was reported not done is
//! not written by that request, before the report or after it. Tests: `unknown` and `strategy`.

use crate::actor::Step;
use crate::database::{Database, Guard, Keys, LateStatement, Row, StartResult, Write, sold};
use crate::resolve::{Resolution, look_up};
use crate::{Machine, Steps};

const STOCK: i8 = 9;
/// The fence of the row and of Redis at the start, so that a flush makes a difference.
const FENCE: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Idle,
    /// Redis has granted the lock; the reply is in flight.
    Granted,
    /// It has received the grant.
    Locked,
    Read(Row),
    /// It knows the row that its first batch left.
    Kept(Row),
    /// The write was sent, and has not begun.
    Sent(Write),
    Running,
    /// The row has a larger fence.
    Stale,
    /// Redis has raised its fence; the reply is in flight.
    Raised,
    /// The connection is lost or timed out.
    Unknown,
    /// Has looked up already, and waits for the row (in two mutants).
    Invalidating,
    Invalidated,
    /// It has found no record of the pending keys.
    NotWritten,
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    pub at: Phase,
    pub fence: u8,
    pub attempts: u8,
    /// The keys of its current batch.
    pub batch: Keys,
    /// Keys that it does not know to be done. The others are reported done.
    pub pending: Keys,
    /// It reported the pending keys as not done.
    pub failed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub database: Database,
    pub processes: Vec<Process>,
    /// The holder of the lock according to Redis.
    pub lock: Option<usize>,
    pub fences: u8,
    pub faults: u8,
    pub flushes: u8,
}

pub struct Engine {
    /// The idempotency keys of each process.
    pub keys: Vec<Keys>,
    /// The keys of a second batch under the same lease, decided on the row that the first one
    /// left, without a read.
    pub then: Keys,
    pub guard: Guard,
    pub resolution: Resolution,
    /// Writes happen under a lock in Redis; otherwise by version alone.
    pub locks: bool,
    /// The number of reads, and of raised fences, after which a process gives up.
    pub attempts: u8,
    /// Connections that may be lost.
    pub faults: u8,
    pub flushes: u8,
    /// Key records are unique.
    pub unique: bool,
    /// The read covers the key records; otherwise they were looked up long before.
    pub reads_keys: bool,
    /// Redis raises the fence of a holder to the row's.
    pub raises: bool,
    /// A holder must not write after a later one, even if the row is as it read it.
    pub in_order: bool,
}

pub type Moves = Vec<(&'static str, State)>;

impl Engine {
    /// Autocommit by version, without a lock.
    pub fn by_version(keys: &[Keys], resolution: Resolution) -> Self {
        Self {
            keys: keys.to_vec(),
            then: 0,
            guard: Guard::Version,
            resolution,
            locks: false,
            attempts: 2,
            faults: 2,
            flushes: 0,
            unique: true,
            reads_keys: true,
            raises: true,
            in_order: false,
        }
    }

    /// The default strategy.
    pub fn fenced(keys: &[Keys]) -> Self {
        let by_version = Self::by_version(keys, Resolution::Invalidate);
        let guard = Guard::VersionAndFence;
        Self { guard, locks: true, flushes: 1, in_order: true, ..by_version }
    }

    fn fresh(&self, who: usize) -> Process {
        let at = if self.locks { Phase::Idle } else { Phase::Locked };
        let batch = self.keys[who];
        let pending = batch | self.then;
        Process { at, fence: 0, attempts: self.attempts, batch, pending, failed: false }
    }

    /// The steps that a process takes by itself.
    pub fn own_moves(&self, state: &State, who: usize) -> Moves {
        let process = state.processes[who];
        let mut moves = Vec::new();
        let to = |at| state.with(who, Process { at, ..process });
        match process.at {
            Phase::Granted => moves.push(("receive the grant", to(Phase::Locked))),
            Phase::Raised => moves.push(("receive the raised fence", to(Phase::Locked))),
            Phase::Sent(_) | Phase::Running => {}
            Phase::Idle => moves.extend(self.acquire(state, who)),
            Phase::Locked => moves.push(("read", self.read(state, who))),
            Phase::Read(read) => {
                moves.push(("send the write of", to(process.send(who, read))));
            }
            Phase::Kept(row) => {
                moves.push(("send the unread write of", to(process.send(who, row))));
            }
            Phase::Stale => moves.push(self.raise_or_fail(state, who)),
            Phase::Unknown | Phase::Invalidating | Phase::Invalidated => {
                moves.extend(self.resolve(state, who));
            }
            Phase::NotWritten => {
                moves.push(("report not done", fail(state, who)));
                moves.extend((process.attempts > 0).then(|| ("retry", to(Phase::Locked))));
            }
            Phase::Finished => {
                if state.lock == Some(who) {
                    let mut next = state.clone();
                    next.lock = None;
                    moves.push(("release", next));
                }
            }
        }
        moves
    }

    fn acquire(&self, state: &State, who: usize) -> Option<(&'static str, State)> {
        if state.lock.is_some() {
            return None;
        }
        let mut next = state.clone();
        next.fences += 1;
        next.lock = Some(who);
        next.processes[who] =
            Process { at: Phase::Granted, fence: next.fences, ..state.processes[who] };
        Some(("grant", next))
    }

    /// The row and the key records, in one snapshot.
    fn read(&self, state: &State, who: usize) -> State {
        let mut next = state.clone();
        let process = &mut next.processes[who];
        if self.reads_keys {
            process.pending &= !(state.database.recorded() & process.batch);
        }
        if process.pending & process.batch == 0 {
            self.end_batch(process, Phase::Locked);
        } else if process.attempts == 0 {
            return fail(&next, who);
        } else {
            process.attempts -= 1;
            process.at = Phase::Read(state.database.row);
        }
        next
    }

    /// Begins the second batch at `next`, if there is one.
    fn end_batch(&self, process: &mut Process, next: Phase) {
        if process.batch != self.then && process.pending & self.then != 0 {
            (process.at, process.batch) = (next, self.then);
        } else {
            process.at = Phase::Finished;
        }
    }

    /// Stale. If this process still holds the lock in Redis, Redis has lost its fences: they are
    /// raised to the row's.
    fn raise_or_fail(&self, state: &State, who: usize) -> (&'static str, State) {
        if !self.raises || state.lock != Some(who) {
            return ("report not done", fail(state, who));
        }
        let mut next = state.clone();
        next.fences = next.fences.max(next.database.row.fence) + 1;
        next.processes[who].fence = next.fences;
        next.processes[who].at = Phase::Raised;
        ("raise the fence of", next)
    }

    /// The server's part of a write that its process waits for, and the loss of the connection.
    pub fn write(&self, state: &State, who: usize) -> Moves {
        let mut moves = Vec::new();
        let lost = |late: Option<Write>| {
            let mut next = state.clone();
            next.faults -= 1;
            next.processes[who].at = Phase::Unknown;
            late.into_iter().for_each(|write| next.database.send_late(LateStatement::Write(write)));
            ("lose the connection of", next)
        };
        match state.processes[who].at {
            Phase::Sent(write) => {
                if state.database.running.is_none() {
                    let mut next = state.clone();
                    let begun = next.database.begin(write, self.guard, self.unique);
                    next.processes[who].at = match begun {
                        StartResult::Running => Phase::Running,
                        StartResult::Stale => Phase::Stale,
                        StartResult::RowChanged | StartResult::Duplicate => Phase::Locked,
                    };
                    if begun == StartResult::Duplicate {
                        next = look_up(&next, who, Phase::Locked);
                    }
                    moves.push(("begin the write of", next));
                }
                if state.faults > 0 {
                    moves.push(lost(Some(write)));
                }
            }
            Phase::Running => {
                let mut next = state.clone();
                let written = next.database.commit().map(|write| write.leaves());
                let process = &mut next.processes[who];
                process.pending &= !process.batch;
                self.end_batch(process, written.map_or(Phase::Locked, Phase::Kept));
                moves.push(("commit the write of", next));
                moves.extend((state.faults > 0).then(|| lost(None)));
            }
            _ => {}
        }
        moves
    }

    /// Statements that no process waits for.
    fn late(&self, state: &State) -> Steps<Step, State> {
        let mut steps = Vec::new();
        let awaited = |who: usize| state.processes[who].at == Phase::Running;
        if let Some(write) = state.database.running {
            let who = usize::from(write.request);
            if !awaited(who) {
                let (mut committed, mut rolled_back) = (state.clone(), state.clone());
                committed.database.commit();
                rolled_back.database.running = None;
                steps.push((Step("commit the late write of", who), Ok(committed)));
                steps.push((Step("roll back the late write of", who), Ok(rolled_back)));
            }
            return steps;
        }
        for (at, statement) in state.database.late.iter().enumerate() {
            let mut next = state.clone();
            next.database.late.remove(at);
            let step = match *statement {
                LateStatement::Invalidate => {
                    next.database.invalidate();
                    Step("invalidate late, number", at)
                }
                LateStatement::Write(write) => {
                    next.database.begin(write, self.guard, self.unique);
                    let who = usize::from(write.request);
                    Step("begin the late write of", who)
                }
            };
            steps.push((step, Ok(next)));
        }
        steps
    }

    fn lock_faults(&self, state: &State) -> Steps<Step, State> {
        let mut steps = Vec::new();
        if let Some(holder) = state.lock {
            let mut next = state.clone();
            next.lock = None;
            steps.push((Step("expire the lease of", holder), Ok(next)));
        }
        if state.flushes > 0 && state.fences > 0 {
            let mut next = state.clone();
            (next.lock, next.fences) = (None, 0);
            next.flushes -= 1;
            steps.push((Step("flush Redis", 0), Ok(next)));
        }
        steps
    }

    fn false_report(&self, state: &State) -> Option<String> {
        for (who, process) in state.processes.iter().enumerate() {
            let done = (self.keys[who] | self.then) & !process.pending;
            if done & !state.database.recorded() != 0 {
                return Some(format!("{} reported done what is not done", who + 1));
            }
            let own = |(key, by): &(Keys, u8)| *by == number(who) && process.pending & key != 0;
            if process.failed && state.database.records.iter().any(own) {
                return Some(format!("{} reported not done what is done", who + 1));
            }
        }
        None
    }

    /// Returns the state after a new process has retried the keys of the first one, and all late
    /// statements were executed.
    pub fn retried(&self, state: &State) -> State {
        let mut now = state.clone();
        now.database.commit();
        (now.lock, now.faults, now.flushes) = (None, 0, 0);
        now.processes = vec![Process { attempts: 3, ..self.fresh(0) }];
        while now.processes[0].at != Phase::Finished {
            let mut moves = self.own_moves(&now, 0);
            moves.extend(self.write(&now, 0));
            now = moves.swap_remove(0).1;
        }
        for statement in std::mem::take(&mut now.database.late) {
            if let LateStatement::Write(write) = statement {
                now.database.begin(write, self.guard, self.unique);
                now.database.commit();
            }
        }
        now
    }
}

impl Process {
    fn send(self, who: usize, read: Row) -> Phase {
        let keys = self.pending & self.batch;
        Phase::Sent(Write { request: number(who), keys, read, fence: self.fence })
    }
}

fn number(who: usize) -> u8 {
    u8::try_from(who).unwrap()
}

fn fail(state: &State, who: usize) -> State {
    state.with(who, Process { at: Phase::Finished, failed: true, ..state.processes[who] })
}

impl State {
    pub fn with(&self, who: usize, process: Process) -> Self {
        let mut next = self.clone();
        next.processes[who] = process;
        next
    }
}

impl Machine for Engine {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let row = Row { stock: STOCK, version: 0, fence: FENCE };
        let database = Database {
            row,
            records: Vec::new(),
            running: None,
            late: Vec::new(),
            is_out_of_order: false,
        };
        let processes = (0..self.keys.len()).map(|who| self.fresh(who)).collect();
        let (faults, flushes) = (self.faults, self.flushes);
        State { database, processes, lock: None, fences: FENCE, faults, flushes }
    }

    fn next(&self, state: &State) -> Steps<Step, State> {
        let mut steps = Vec::new();
        for who in 0..state.processes.len() {
            let moves = self.own_moves(state, who).into_iter().chain(self.write(state, who));
            steps.extend(moves.map(|(name, next)| (Step(name, who), Ok(next))));
        }
        steps.extend(self.late(state));
        steps.extend(self.lock_faults(state));
        steps
    }

    fn violation(&self, state: &State) -> Option<String> {
        let records = &state.database.records;
        let lost = sold_by(records) - (STOCK - state.database.row.stock);
        if lost != 0 {
            return Some(format!("a lost update: {lost} of {} sales", records.len()));
        }
        if self.in_order && state.database.is_out_of_order {
            return Some("a late holder wrote after a later one".to_owned());
        }
        if records.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Some("a key was executed twice".to_owned());
        }
        self.false_report(state)
    }
}

fn sold_by(records: &[(Keys, u8)]) -> i8 {
    records.iter().map(|(key, _)| sold(*key)).sum()
}
