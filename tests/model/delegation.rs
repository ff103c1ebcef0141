//! A command that one replica forwards to the holder of the lease, in the steps that a fault can
//! come between.
//!
//! The sender forwards one order to the holder, and waits: for an answer, or for the lease itself.
//! Messages are lost, or arrive at any later time, one of them twice; a lease ends at any moment,
//! and its holder learns it later or never; a flush deletes the lease and its fences. The order
//! needs a unit, of which there is none at first; another write brings one at any time, so that who
//! decides later decides otherwise. A process without further steps has crashed.
//!
//! Checked in every state: the order is executed at most once; if its client was told that it was,
//! it was; if the client was told that it was not, it was not and never is. Who forwards must raise
//! the row's fence above all of the holder's before it looks the key up, and a holder must not
//! execute under another lease than the message names.

use crate::{Machine, Steps, assert_breaks, assert_holds};

/// The holder and the sender, as holders of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Who {
    Holder,
    Sender,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Row {
    version: u8,
    fence: u8,
    has_unit: bool,
}

/// What a process does with the command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// The holder does not have it, or no more; the sender has not begun.
    Without,
    Queued,
    Read(Row),
    /// The write was sent, and arrives at any later time.
    Sent(Row),
    /// The row has a higher fence.
    Stale,
    /// Its version or fence is raised; the key is looked up next.
    Invalidated,
    /// It was not executed by another, and is to be executed here.
    Resolved,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Word {
    Done,
    NotDone,
    Returned,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Process {
    at: Phase,
    /// The lease that it believes to have.
    lease: Option<u8>,
    /// The fence of that lease, which may be raised.
    fence: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    row: Row,
    executions: u8,
    /// The lease in Redis.
    lease: Option<(Who, u8)>,
    leases: u8,
    fences: u8,
    flushes: u8,
    holder: Process,
    sender: Process,
    /// The lease that the command in the queue was addressed to.
    addressed: u8,
    message: Option<u8>,
    /// How often it may arrive once more.
    copies: u8,
    /// True once it has arrived at the holder.
    has_arrived: bool,
    answer: Option<Word>,
    /// True until the sender's client was told something.
    waits: bool,
    told: Option<Word>,
}

struct Delegation {
    /// The holder executes only under the lease that the message names.
    is_bound: bool,
    /// It drops a message that has arrived before.
    drops_copies: bool,
    /// The sender raises the row's version, and its fence to that of the own lease.
    raises_version: bool,
    raises_fence: bool,
    /// It raises its own fence above all that the holder may have, which a flush makes necessary.
    raises_own_fence: bool,
}

const SOUND: Delegation = Delegation {
    is_bound: true,
    drops_copies: true,
    raises_version: true,
    raises_fence: true,
    raises_own_fence: true,
};

/// The fence of the lease to which the command is addressed.
const HOLDERS_FENCE: u8 = 1;
const FLUSHES: u8 = 2;

/// More leases than this show nothing new.
const MAX_LEASES: u8 = 3;
const MAX_VERSION: u8 = 5;

impl State {
    fn process(&self, who: Who) -> Process {
        match who {
            Who::Holder => self.holder,
            Who::Sender => self.sender,
        }
    }

    fn with(&self, who: Who, process: Process) -> Self {
        let mut next = self.clone();
        match who {
            Who::Holder => next.holder = process,
            Who::Sender => next.sender = process,
        }
        next
    }

    /// Its result is known: the holder answers, the sender tells its client.
    fn finished(&self, who: Who, word: Word) -> Self {
        let mut next = self.with(who, Process { at: Phase::Without, ..self.process(who) });
        match who {
            Who::Holder => next.answer = Some(word),
            Who::Sender => next.tell(word),
        }
        next
    }

    fn tell(&mut self, word: Word) {
        self.waits = false;
        self.told = Some(word);
    }

    fn acquired(&self, who: Who) -> Option<Self> {
        if self.lease.is_some() || self.leases == MAX_LEASES {
            return None;
        }
        let (lease, fence) = (self.leases + 1, self.fences + 1);
        let process = Process { lease: Some(lease), fence, ..self.process(who) };
        let next = self.with(who, process);
        Some(Self { lease: Some((who, lease)), leases: lease, fences: fence, ..next })
    }
}

impl Delegation {
    /// The steps from a command that is to be executed to its result.
    fn execute(&self, state: &State, who: Who) -> Vec<(&'static str, State)> {
        let process = state.process(who);
        let to = |at| state.with(who, Process { at, ..process });
        let is_queued = matches!((who, process.at), (Who::Holder, Phase::Queued));
        let mut moves = Vec::new();
        match process.at {
            Phase::Queued | Phase::Resolved => {
                let Some(lease) = process.lease else { return moves };
                let is_allowed = !is_queued || !self.is_bound || lease == state.addressed;
                if is_allowed {
                    let is_stale = state.row.fence > process.fence;
                    moves.push((
                        "read",
                        to(if is_stale { Phase::Stale } else { Phase::Read(state.row) }),
                    ));
                }
            }
            Phase::Read(_) if state.executions > 0 => {
                moves.push(("find the key record", state.finished(who, Word::Done)));
            }
            Phase::Read(row) if !row.has_unit => {
                moves.push(("reject it", state.finished(who, Word::NotDone)));
            }
            Phase::Read(row) => moves.push(("send the write", to(Phase::Sent(row)))),
            Phase::Sent(row) => moves.push(("write", self.write(state, who, row))),
            Phase::Stale => {
                let mut next = to(Phase::Without);
                if state.lease.is_some_and(|lease| Some(lease.1) == process.lease) {
                    let fence = state.row.fence.max(state.fences) + 1;
                    let at = if who == Who::Holder { Phase::Queued } else { Phase::Resolved };
                    next = state.with(who, Process { at, fence, ..process });
                    next.fences = fence;
                } else {
                    next = next.with(who, Process { lease: None, at: Phase::Without, ..process });
                    if who == Who::Holder {
                        next.answer = Some(Word::Returned);
                    }
                }
                moves.push(("raise the fence", next));
            }
            Phase::Without | Phase::Invalidated => {}
        }
        moves
    }

    fn write(&self, state: &State, who: Who, read: Row) -> State {
        let process = state.process(who);
        // The key record is unique: with it, the statement is rolled back.
        let matches = state.row.version == read.version && state.row.fence <= process.fence;
        if !matches || state.executions > 0 {
            let at = if who == Who::Holder { Phase::Queued } else { Phase::Resolved };
            return state.with(who, Process { at, ..process });
        }
        let mut next = state.finished(who, Word::Done);
        next.executions += 1;
        next.row = Row { version: read.version + 1, fence: process.fence, has_unit: false };
        next
    }

    fn arrived(&self, state: &State, lease: u8) -> State {
        let mut next = State { message: None, has_arrived: true, ..state.clone() };
        if state.has_arrived && self.drops_copies {
            return next;
        }
        if self.is_bound && state.holder.lease != Some(lease) {
            next.answer = Some(Word::Returned);
        } else if state.holder.at == Phase::Without {
            next.holder.at = Phase::Queued;
            next.addressed = lease;
        } else {
            // A request with its key is in flight.
            next.answer = Some(Word::NotDone);
        }
        next
    }

    /// The sender, under a lease of its own, resolves what has no answer.
    fn resolve(&self, state: &State) -> Vec<(&'static str, State)> {
        let sender = state.sender;
        let mut moves = Vec::new();
        match sender.at {
            Phase::Without if sender.lease.is_some() => {
                // The holder may have raised its own above the row's, once.
                let highest = state.row.fence.max(HOLDERS_FENCE) + 1;
                let is_too_low = if self.raises_own_fence {
                    sender.fence <= highest
                } else {
                    sender.fence < state.row.fence
                };
                if is_too_low {
                    // A lease that is lost resolves nothing.
                    let mut next = state.clone();
                    if state.lease.is_some_and(|lease| Some(lease.1) == sender.lease) {
                        next.sender.fence = highest.max(state.fences) + 1;
                        next.fences = next.sender.fence;
                    } else {
                        next.sender.lease = None;
                    }
                    return vec![("raise the own fence", next)];
                }
                let mut next = state.clone();
                next.row.version += u8::from(self.raises_version);
                if self.raises_fence {
                    next.row.fence = sender.fence;
                }
                next.sender.at = Phase::Invalidated;
                moves.push(("invalidate", next));
            }
            Phase::Invalidated if state.executions > 0 => {
                moves.push(("look up: done", state.finished(Who::Sender, Word::Done)));
            }
            Phase::Invalidated => {
                let mut next = state.clone();
                next.sender.at = Phase::Resolved;
                moves.push(("look up: open", next));
            }
            _ => {}
        }
        moves
    }
}

impl Machine for Delegation {
    type State = State;
    type Step = &'static str;

    fn start(&self) -> State {
        let idle = Process { at: Phase::Without, lease: None, fence: 0 };
        State {
            row: Row { fence: 1, ..Row::default() },
            executions: 0,
            lease: Some((Who::Holder, 1)),
            leases: 1,
            fences: 1,
            flushes: FLUSHES,
            holder: Process { lease: Some(1), fence: 1, ..idle },
            sender: idle,
            addressed: 0,
            message: Some(1),
            copies: 1,
            has_arrived: false,
            answer: None,
            waits: true,
            told: None,
        }
    }

    fn next(&self, state: &State) -> Steps<&'static str, State> {
        let mut moves = Vec::new();
        if state.row.version >= MAX_VERSION {
            return Vec::new();
        }
        if let Some(lease) = state.message {
            let arrived = self.arrived(state, lease);
            if let Some(copies) = state.copies.checked_sub(1) {
                let next = State { message: Some(lease), copies, ..arrived.clone() };
                moves.push(("the message arrives, and will once more", next));
            }
            moves.push(("the message arrives", arrived));
            moves.push(("the message is lost", State { message: None, ..state.clone() }));
        }
        if let Some(word) = state.answer {
            let mut next = State { answer: None, ..state.clone() };
            if state.waits && state.sender.at == Phase::Without {
                match word {
                    Word::Returned => next.sender.at = Phase::Resolved,
                    word => next.tell(word),
                }
            }
            moves.push(("the answer arrives", next));
            moves.push(("the answer is lost", State { answer: None, ..state.clone() }));
        }

        moves.extend(self.execute(state, Who::Holder));
        if state.waits {
            moves.extend(self.execute(state, Who::Sender));
            moves.extend(self.resolve(state));
            if state.sender.lease.is_none() {
                moves.extend(state.acquired(Who::Sender).map(|next| ("the sender acquires", next)));
            }
        }
        if state.holder.lease.is_none() {
            moves.extend(state.acquired(Who::Holder).map(|next| ("the holder acquires", next)));
        } else if matches!(state.holder.at, Phase::Without | Phase::Queued) {
            // What it has not begun, it returns: if it is bound to the lease.
            let mut next = state.clone();
            next.holder.lease = None;
            if next.lease.is_some_and(|(who, _)| who == Who::Holder) {
                next.lease = None;
            }
            if self.is_bound && state.holder.at == Phase::Queued {
                next.holder.at = Phase::Without;
                next.answer = Some(Word::Returned);
            }
            moves.push(("the holder gives up its lease", next));
        }
        if state.lease.is_some() {
            moves.push(("the lease expires", State { lease: None, ..state.clone() }));
            if state.flushes > 0 {
                let flushed =
                    State { lease: None, fences: 0, flushes: state.flushes - 1, ..state.clone() };
                moves.push(("Redis loses its data", flushed));
            }
        }
        if !state.row.has_unit && state.executions == 0 {
            let mut next = state.clone();
            next.row = Row { version: state.row.version + 1, has_unit: true, ..state.row };
            moves.push(("a unit comes", next));
        }
        moves.into_iter().map(|(step, next)| (step, Ok(next))).collect()
    }

    fn violation(&self, state: &State) -> Option<String> {
        match (state.executions, state.told) {
            (2.., _) => Some("executed twice".to_owned()),
            (0, Some(Word::Done)) => Some("reported done what is not".to_owned()),
            (1, Some(Word::NotDone)) => Some("reported not done what is done".to_owned()),
            _ => None,
        }
    }
}

#[test]
fn forwarded_command_is_executed_once_and_reported_truly() {
    assert_holds("delegation", &SOUND);
}

#[test]
fn lookup_without_invalidating_misses_the_holder() {
    let machine = Delegation { raises_version: false, raises_fence: false, ..SOUND };
    assert_breaks("delegation: only looked up", &machine, "reported not done what is done");
}

#[test]
fn raised_version_does_not_stop_a_command_that_was_not_begun() {
    let machine = Delegation { raises_fence: false, ..SOUND };
    assert_breaks("delegation: by version alone", &machine, "reported not done what is done");
}

#[test]
fn flush_gives_the_sender_a_lower_fence_than_the_holders() {
    let machine = Delegation { raises_own_fence: false, ..SOUND };
    let trace = assert_breaks("delegation: after a flush", &machine, "not done what is done");
    assert!(trace.contains(&"Redis loses its data".to_owned()), "{trace:?}");
}

#[test]
fn holder_must_not_execute_under_its_next_lease() {
    let machine = Delegation { is_bound: false, ..SOUND };
    assert_breaks("delegation: under any lease", &machine, "reported not done what is done");
}

#[test]
fn message_that_arrives_twice_must_be_accepted_once() {
    let machine = Delegation { drops_copies: false, ..SOUND };
    assert_breaks("delegation: accepts copies", &machine, "reported not done what is done");
}
