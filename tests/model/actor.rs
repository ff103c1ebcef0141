//! A model of the actor of one process (`crates/holdfast-lock/src/fenced/actor.rs`): how it handles
//! replies, and missing replies.
//!
//! One call at a time, like the actor's; a guard exists whenever the process holds the lock. Owners
//! and grants are renamed after every step, so that states which differ in names only are one
//! state, and their number is finite.
//!
//! `protocol` and `waiting` prove properties of this model; whether it matches the actor must be
//! checked by reading both. A renewal may be sent at any time or never, which covers leases that
//! end after `max_hold`. Not modelled: raised fences, nested guards, waiters with leases of
//! different lengths, and the loop that receives messages.

use std::fmt::{self, Display};

use crate::scripts::{FENCES_PER_GRANT, Mutant, NO_OWNER, Owner, Redis, Reply, Rules, Times, Verb};

pub use crate::scripts::CURRENT_RULES;

/// Owners of one process that may exist at a time: the current, the next, and those of lost calls.
const OWNERS: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockState {
    Idle,
    Waiting,
    Holding,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallPhase {
    Sent,
    Replied(Reply),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    pub verb: Verb,
    pub owner: Owner,
    /// Ticks since it was first sent.
    pub age: u8,
    pub phase: CallPhase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    pub at: LockState,
    pub owner: Owner,
    pub fence: u8,
    /// Holding: ticks until its own deadline; until then it considers the lock its own. Waiter:
    /// ticks until a grant may expire that was made after its last poll.
    pub left: u8,
    pub call: Option<Call>,
    /// A *granted* message in flight: the owner and the fence. It arrives at any time or never.
    /// Dropped when a later poll was rejected: then its fence is not above that of the current
    /// holder, so it proves nothing.
    pub message: Option<(Owner, u8)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub redis: Redis,
    pub processes: Vec<Process>,
    /// Calls in flight whose senders have given up.
    pub abandoned_calls: Vec<(Verb, Owner)>,
    /// Upper bound of their number.
    pub max_abandoned_calls: usize,
    /// The largest fence of a guard so far.
    pub last_fence: u8,
    pub faults: u8,
}

pub const IDLE: Process =
    Process { at: LockState::Idle, owner: NO_OWNER, fence: 0, left: 0, call: None, message: None };
const WAITING: Process = Process { at: LockState::Waiting, ..IDLE };

/// An event, and the process it affects.
#[derive(Clone, Copy)]
pub struct Step(pub &'static str, pub usize);

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1 + 1)
    }
}

pub struct Protocol {
    pub rules: Rules,
    pub processes: usize,
    pub faults: u8,
    /// Upper bound of abandoned calls that are still in flight.
    pub abandoned_calls: usize,
    /// Some callers only try.
    pub tries: bool,
    /// Any call without a response is sent again. The actor repeats renewals only.
    pub repeats: bool,
    /// A released guard is handed to the next waiter of its process.
    pub hands_off: bool,
}

impl Protocol {
    pub fn new(processes: usize, faults: u8) -> Self {
        Self {
            rules: CURRENT_RULES,
            processes,
            faults,
            abandoned_calls: 1,
            tries: false,
            repeats: false,
            hands_off: true,
        }
    }

    /// Three processes, no faults; grants expire with the next tick, which bounds the exploration.
    pub fn three_processes() -> Self {
        let times = Times { grant: 1, ..CURRENT_RULES.times };
        let rules = Rules { times, ..CURRENT_RULES };
        Self { rules, hands_off: false, ..Self::new(3, 0) }
    }

    /// With times whose third is not zero: a lease or a grant that ends soon is not used.
    pub fn with_margins(self) -> Self {
        let times = Times { ttl: 4, grant: 3, ..CURRENT_RULES.times };
        Self { rules: Rules { times, ..self.rules }, ..self }
    }

    pub fn mutant(mutant: Mutant, faults: u8) -> Self {
        let rules = Rules { mutant, ..CURRENT_RULES };
        Self { rules, ..Self::new(2, faults) }
    }

    /// Begins a lease after a reply; hands out a guard if enough of the lease is left.
    pub fn begin_lease(
        &self,
        state: &mut State,
        who: usize,
        call: Call,
        fence: u8,
    ) -> Result<(), String> {
        let from_sending = !self.rules.has(Mutant::DeadlineFromReply);
        let ttl = self.rules.times.ttl;
        let left = if from_sending { ttl.saturating_sub(call.age) } else { ttl };
        state.processes[who] =
            Process { at: LockState::Holding, owner: call.owner, fence, left, ..IDLE };
        self.hand_out_guard(state, who)
    }

    /// Receives a *granted* message: equivalent to a reply if the grant cannot have expired;
    /// otherwise the process confirms it first.
    pub fn receive_grant(&self, state: &mut State, who: usize) -> Result<(), String> {
        let process = &mut state.processes[who];
        let Some((owner, fence)) = process.message.take() else { return Ok(()) };
        if owner != process.owner {
            return Ok(());
        }
        if process.left <= self.rules.times.grant / 3 {
            send(process, Verb::Confirm, owner);
            return Ok(());
        }
        *process = Process { at: LockState::Holding, fence, ..*process };
        self.hand_out_guard(state, who)
    }

    /// In the queue, after a response that another owner holds the lock.
    fn waiting(&self, owner: Owner, call: Call, before: Process) -> Process {
        let left = self.rules.times.grant.saturating_sub(call.age);
        let message = before.message.filter(|_| self.rules.has(Mutant::StaleMessageCounts));
        Process { owner, left, message, ..WAITING }
    }

    /// Hands out a guard, or releases the lock because too little of the lease is left.
    pub fn hand_out_guard(&self, state: &mut State, who: usize) -> Result<(), String> {
        let process = &mut state.processes[who];
        if process.left <= self.rules.times.ttl / 3 && !self.rules.has(Mutant::LeaseIsNotChecked) {
            send(process, Verb::Release { again: NO_OWNER }, process.owner);
            return Ok(());
        }
        if process.fence <= state.last_fence {
            return Err(format!("guards with fences {} and {}", state.last_fence, process.fence));
        }
        state.last_fence = process.fence;
        Ok(())
    }

    pub fn receive_reply(
        &self,
        state: &mut State,
        who: usize,
        call: Call,
        reply: Reply,
    ) -> Result<(), String> {
        let process = &mut state.processes[who];
        process.call = None;
        match (call.verb, reply) {
            (Verb::Confirm, Reply::Held(_)) if process.at == LockState::Holding => {
                process.left = self.rules.times.ttl.saturating_sub(call.age);
            }
            (Verb::Try | Verb::Acquire | Verb::Confirm, Reply::Held(fence)) => {
                return self.begin_lease(state, who, call, fence);
            }
            (Verb::Release { again }, Reply::Held(fence)) => {
                return self.begin_lease(state, who, Call { owner: again, ..call }, fence);
            }
            (Verb::Acquire, Reply::NotHeld) => {
                *process = self.waiting(call.owner, call, *process);
            }
            (Verb::Confirm, Reply::NotHeld) if process.at == LockState::Waiting => {}
            (Verb::Release { again }, Reply::NotHeld) if again != NO_OWNER => {
                *process = self.waiting(again, call, *process);
            }
            (Verb::Try | Verb::Confirm | Verb::Release { .. } | Verb::Leave, _) => *process = IDLE,
        }
        Ok(())
    }

    /// Gives up a call without a response: what may have been acquired is released once, without
    /// waiting for the result. A renewal is left to the next one.
    pub fn give_up(&self, state: &mut State, who: usize, call: Call) {
        let process = &mut state.processes[who];
        process.call = None;
        if call.verb == Verb::Confirm && process.at == LockState::Holding {
            return;
        }
        *process = IDLE;
        if call.verb != Verb::Leave {
            state.abandon(Verb::Leave, call.owner);
        }
        if let Verb::Release { again } = call.verb
            && again != NO_OWNER
        {
            state.abandon(Verb::Leave, again);
        }
    }

    /// Runs a script, and checks that running it twice gives the same result.
    pub fn execute(&self, redis: &mut Redis, verb: Verb, owner: Owner) -> Result<Reply, String> {
        let reply = redis.run(verb, owner, self.rules)?;
        let again = if let Verb::Release { again } = verb { again } else { NO_OWNER };
        if self.rules.mutant == Mutant::None && (again == NO_OWNER || self.repeats) {
            let mut twice = redis.clone();
            let second = twice.run(verb, owner, self.rules)?;
            // The second run records a poll.
            let mut once = redis.clone();
            once.record_poll(again);
            twice.record_poll(again);
            if twice != once || second != reply {
                return Err(format!("{verb:?} is not the same when repeated"));
            }
        }
        Ok(reply)
    }
}

impl State {
    /// Adds a call without a sender. Returns `false` if it exceeds the bound, and is lost.
    pub fn abandon(&mut self, verb: Verb, owner: Owner) -> bool {
        let max_abandoned_calls = self.abandoned_calls.len() < self.max_abandoned_calls;
        if max_abandoned_calls {
            self.abandoned_calls.push((verb, owner));
        }
        max_abandoned_calls
    }

    pub fn with(&self, who: usize, process: Process) -> State {
        let mut next = self.clone();
        next.processes[who] = process;
        next
    }

    pub fn at_fault(mut self) -> State {
        self.faults -= 1;
        self
    }

    pub fn tick(&self, rules: Rules, slow: Option<usize>) -> State {
        let mut next = self.clone();
        next.redis.tick(rules);
        for (who, process) in next.processes.iter_mut().enumerate() {
            if Some(who) != slow {
                process.left = process.left.saturating_sub(1);
            }
            if let Some(call) = &mut process.call {
                call.age = (call.age + 1).min(rules.times.ttl);
            }
        }
        next
    }

    pub fn fresh(&self, who: usize) -> Option<Owner> {
        let mut used = [false; OWNERS as usize];
        let mut all = self.clone();
        all.owners(&mut |owner| {
            if process_of(*owner) == who {
                used[usize::from((*owner - 1) % OWNERS)] = true;
            }
        });
        let free = u8::try_from(used.iter().position(|used| !used)?).ok()?;
        Some(u8::try_from(who).ok()? * OWNERS + free + 1)
    }

    fn owners(&mut self, each: &mut impl FnMut(&mut Owner)) {
        let mut each_owner = |owner: &mut Owner| {
            if *owner != NO_OWNER {
                each(owner);
            }
        };
        for process in &mut self.processes {
            each_owner(&mut process.owner);
            if let Some((owner, _)) = &mut process.message {
                each_owner(owner);
            }
            if let Some(call) = &mut process.call {
                each_owner(&mut call.owner);
                if let Verb::Release { again } = &mut call.verb {
                    each_owner(again);
                }
            }
        }
        if let Some(lock) = &mut self.redis.lock {
            each_owner(&mut lock.owner);
        }
        for waiting in &mut self.redis.queue {
            each_owner(&mut waiting.owner);
        }
        for (verb, owner) in &mut self.abandoned_calls {
            each_owner(owner);
            if let Verb::Release { again } = verb {
                each_owner(again);
            }
        }
    }

    fn fences(&mut self, each: &mut impl FnMut(&mut u8)) {
        each(&mut self.last_fence);
        for process in &mut self.processes {
            each(&mut process.fence);
            if let Some((_, fence)) = &mut process.message {
                each(fence);
            }
            if let Some(Call { phase: CallPhase::Replied(Reply::Held(fence)), .. }) =
                &mut process.call
            {
                each(fence);
            }
        }
        if let Some(lock) = &mut self.redis.lock {
            each(&mut lock.fence);
        }
    }

    /// Renumbers owners by their first occurrence and grants by their order.
    pub fn renamed(mut self) -> State {
        if let Some((owner, fence)) = self.redis.message.take() {
            let process = &mut self.processes[process_of(owner)];
            if process.message.is_none_or(|(earlier, _)| earlier != owner) {
                process.message = Some((owner, fence));
            }
        }
        for process in &mut self.processes {
            // Drops a message for an owner under which the process neither waits nor will wait.
            process.message = process.message.filter(|(owner, _)| {
                let is_requested = process.call.is_some_and(|call| {
                    call.owner == *owner || call.verb == Verb::Release { again: *owner }
                });
                process.at != LockState::Holding && (process.owner == *owner || is_requested)
                    || process.at == LockState::Holding && is_requested && process.owner != *owner
            });
            // Clears values that no longer matter.
            let is_releasing =
                matches!(process.call, Some(Call { verb: Verb::Release { .. }, .. }));
            if process.at != LockState::Holding || is_releasing {
                process.fence = 0;
            }
            if process.at == LockState::Idle || is_releasing {
                process.left = 0;
            }
            if let Some(call) = &mut process.call
                && matches!(call.verb, Verb::Leave | Verb::Release { again: NO_OWNER })
            {
                call.age = 0;
            }
        }
        self.abandoned_calls.sort_unstable();
        let mut names = [NO_OWNER; 3 * OWNERS as usize + 1];
        let mut next = [0; 3];
        self.owners(&mut |owner| {
            let who = process_of(*owner);
            let name = &mut names[usize::from(*owner)];
            if *name == NO_OWNER {
                next[who] += 1;
                *name = *owner - (*owner - 1) % OWNERS + next[who] - 1;
            }
            *owner = *name;
        });
        self.abandoned_calls.sort_unstable();
        let mut known = [false; 32];
        known[usize::from(self.redis.grants)] = true;
        self.fences(&mut |fence| known[usize::from(*fence / FENCES_PER_GRANT)] = true);
        let rank = |block: u8| {
            let below = known[..usize::from(block)].iter().filter(|known| **known).count();
            u8::try_from(below).unwrap()
        };
        self.fences(&mut |fence| {
            let within = *fence % FENCES_PER_GRANT;
            *fence = rank(*fence / FENCES_PER_GRANT) * FENCES_PER_GRANT + within;
        });
        self.redis.grants = rank(self.redis.grants);
        self
    }
}

pub fn process_of(owner: Owner) -> usize {
    usize::from((owner - 1) / OWNERS)
}

pub fn send(process: &mut Process, verb: Verb, owner: Owner) {
    process.call = Some(Call { verb, owner, age: 0, phase: CallPhase::Sent });
}
