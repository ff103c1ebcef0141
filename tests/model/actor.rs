//! A process as `crates/holdfast-lock/src/fenced/actor.rs` has it: what it makes of answers, and of
//! silence.
//!
//! One call at a time, like the actor's; a guard is out whenever the process holds. Owners and
//! grants are renamed after every step, so that states which differ in names only are one state,
//! and there are finitely many of them.
//!
//! It proves nothing by itself (`protocol` and `waiting` do), and that this process is the actor is
//! a matter of reading both. A renewal may be made at any time or never, which covers those that
//! end after `max_hold`. `refence`, nested guards, waiters with leases of different length and
//! the loop that receives messages are not modelled.

use std::fmt::{self, Display};

use crate::scripts::{FENCES_PER_GRANT, Mutant, NOBODY, Owner, Redis, Reply, Rules, Times, Verb};

pub use crate::scripts::AS_IT_IS;

/// Owners that one process may have about at once: its own, the next, and those of lost calls.
const OWNERS: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    Out,
    InLine,
    Holds,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Sent,
    Answered(Reply),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    pub verb: Verb,
    pub owner: Owner,
    /// Ticks since it was first sent.
    pub age: u8,
    pub phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    pub at: At,
    pub owner: Owner,
    pub fence: u8,
    /// Ticks until its own deadline. While there are any and it holds, it believes. In line: until
    /// a grant may end that was made after it asked last.
    pub left: u8,
    pub call: Option<Call>,
    /// A word on the way: it was granted the lock, as that owner and with that fence. It comes at
    /// any time or never. Dropped when the process has asked since and was refused, for then the
    /// word's fence is not above that of the current holder, and proves nothing.
    pub word: Option<(Owner, u8)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub redis: Redis,
    pub processes: Vec<Process>,
    /// Calls on the way whose senders have given up.
    pub letters: Vec<(Verb, Owner)>,
    /// For how many of them there is room.
    pub room: usize,
    /// The largest fence a guard was handed out with.
    pub last: u8,
    pub faults: u8,
}

pub const OUT: Process =
    Process { at: At::Out, owner: NOBODY, fence: 0, left: 0, call: None, word: None };
const IN_LINE: Process = Process { at: At::InLine, ..OUT };

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
    pub letters: usize,
    /// Some callers only try.
    pub tries: bool,
    /// Any call without a response is sent again. The actor repeats renewals only.
    pub repeats: bool,
    /// A released guard is handed to the next waiter of its process.
    pub passes: bool,
}

impl Protocol {
    pub fn new(processes: usize, faults: u8) -> Self {
        Self {
            rules: AS_IT_IS,
            processes,
            faults,
            letters: 1,
            tries: false,
            repeats: false,
            passes: true,
        }
    }

    /// Three, no faults; grants end with the next tick, which keeps the walk short.
    pub fn of_three() -> Self {
        let times = Times { grant: 1, ..AS_IT_IS.times };
        let rules = Rules { times, ..AS_IT_IS };
        Self { rules, passes: false, ..Self::new(3, 0) }
    }

    /// With times of which a third is not zero: a lease or a grant that ends soon is not used.
    pub fn with_margins(self) -> Self {
        let times = Times { ttl: 4, grant: 3, ..AS_IT_IS.times };
        Self { rules: Rules { times, ..self.rules }, ..self }
    }

    pub fn mutant(mutant: Mutant, faults: u8) -> Self {
        let rules = Rules { mutant, ..AS_IT_IS };
        Self { rules, ..Self::new(2, faults) }
    }

    /// A lease begins, by an answer: with a guard, if there is enough of it left.
    pub fn hold(&self, state: &mut State, who: usize, call: Call, fence: u8) -> Result<(), String> {
        let from_sending = !self.rules.lack(Mutant::DeadlineFromTheAnswer);
        let ttl = self.rules.times.ttl;
        let left = if from_sending { ttl.saturating_sub(call.age) } else { ttl };
        state.processes[who] = Process { at: At::Holds, owner: call.owner, fence, left, ..OUT };
        self.hand_out(state, who)
    }

    /// A word comes: as good as an answer if the grant can't have ended; otherwise it is a reason
    /// to ask.
    pub fn hear_word(&self, state: &mut State, who: usize) -> Result<(), String> {
        let process = &mut state.processes[who];
        let Some((owner, fence)) = process.word.take() else { return Ok(()) };
        if owner != process.owner {
            return Ok(());
        }
        if process.left <= self.rules.times.grant / 3 {
            send(process, Verb::Confirm, owner);
            return Ok(());
        }
        *process = Process { at: At::Holds, fence, ..*process };
        self.hand_out(state, who)
    }

    /// In the queue, after a response that another owner holds the lock.
    fn in_line(&self, owner: Owner, call: Call, before: Process) -> Process {
        let left = self.rules.times.grant.saturating_sub(call.age);
        let word = before.word.filter(|_| self.rules.lack(Mutant::WordOfAnyGrant));
        Process { owner, left, word, ..IN_LINE }
    }

    /// Hands out a guard, or releases the lock because too little of the lease is left.
    pub fn hand_out(&self, state: &mut State, who: usize) -> Result<(), String> {
        let process = &mut state.processes[who];
        if process.left <= self.rules.times.ttl / 3
            && !self.rules.lack(Mutant::GuardsAreNotLookedAt)
        {
            send(process, Verb::Release { again: NOBODY }, process.owner);
            return Ok(());
        }
        if process.fence <= state.last {
            return Err(format!("guards with fences {} and {}", state.last, process.fence));
        }
        state.last = process.fence;
        Ok(())
    }

    pub fn hear(
        &self,
        state: &mut State,
        who: usize,
        call: Call,
        reply: Reply,
    ) -> Result<(), String> {
        let process = &mut state.processes[who];
        process.call = None;
        match (call.verb, reply) {
            (Verb::Confirm, Reply::Held(_)) if process.at == At::Holds => {
                process.left = self.rules.times.ttl.saturating_sub(call.age);
            }
            (Verb::Try | Verb::Acquire | Verb::Confirm, Reply::Held(fence)) => {
                return self.hold(state, who, call, fence);
            }
            (Verb::Release { again }, Reply::Held(fence)) => {
                return self.hold(state, who, Call { owner: again, ..call }, fence);
            }
            (Verb::Acquire, Reply::No) => {
                *process = self.in_line(call.owner, call, *process);
            }
            (Verb::Confirm, Reply::No) if process.at == At::InLine => {}
            (Verb::Release { again }, Reply::No) if again != NOBODY => {
                *process = self.in_line(again, call, *process);
            }
            (Verb::Try | Verb::Confirm | Verb::Release { .. } | Verb::Leave, _) => *process = OUT,
        }
        Ok(())
    }

    /// Gives up a call without a response: what may have been acquired is released once, without
    /// waiting for the result. A renewal is left to the next one.
    pub fn despair(&self, state: &mut State, who: usize, call: Call) {
        let process = &mut state.processes[who];
        process.call = None;
        if call.verb == Verb::Confirm && process.at == At::Holds {
            return;
        }
        *process = OUT;
        if call.verb != Verb::Leave {
            state.post(Verb::Leave, call.owner);
        }
        if let Verb::Release { again } = call.verb
            && again != NOBODY
        {
            state.post(Verb::Leave, again);
        }
    }

    /// A script is run, once and, to see that it makes no difference, twice.
    pub fn carry_out(&self, redis: &mut Redis, verb: Verb, owner: Owner) -> Result<Reply, String> {
        let reply = redis.run(verb, owner, self.rules)?;
        let again = if let Verb::Release { again } = verb { again } else { NOBODY };
        if self.rules.mutant == Mutant::None && (again == NOBODY || self.repeats) {
            let mut twice = redis.clone();
            let second = twice.run(verb, owner, self.rules)?;
            // Asked twice, it is seen twice, and with that among the last seen.
            let mut once = redis.clone();
            once.is_seen(again);
            twice.is_seen(again);
            if twice != once || second != reply {
                return Err(format!("{verb:?} is not the same when repeated"));
            }
        }
        Ok(reply)
    }
}

impl State {
    /// A call without a sender. Whether there was room for it; otherwise it is lost.
    pub fn post(&mut self, verb: Verb, owner: Owner) -> bool {
        let room = self.letters.len() < self.room;
        if room {
            self.letters.push((verb, owner));
        }
        room
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
        let mut some = |owner: &mut Owner| {
            if *owner != NOBODY {
                each(owner);
            }
        };
        for process in &mut self.processes {
            some(&mut process.owner);
            if let Some((owner, _)) = &mut process.word {
                some(owner);
            }
            if let Some(call) = &mut process.call {
                some(&mut call.owner);
                if let Verb::Release { again } = &mut call.verb {
                    some(again);
                }
            }
        }
        if let Some(lock) = &mut self.redis.lock {
            some(&mut lock.owner);
        }
        for waiting in &mut self.redis.queue {
            some(&mut waiting.owner);
        }
        for (verb, owner) in &mut self.letters {
            some(owner);
            if let Verb::Release { again } = verb {
                some(again);
            }
        }
    }

    fn fences(&mut self, each: &mut impl FnMut(&mut u8)) {
        each(&mut self.last);
        for process in &mut self.processes {
            each(&mut process.fence);
            if let Some((_, fence)) = &mut process.word {
                each(fence);
            }
            if let Some(Call { phase: Phase::Answered(Reply::Held(fence)), .. }) = &mut process.call
            {
                each(fence);
            }
        }
        if let Some(lock) = &mut self.redis.lock {
            each(&mut lock.fence);
        }
    }

    /// Names owners by where they first appear and grants by their order.
    pub fn renamed(mut self) -> State {
        if let Some((owner, fence)) = self.redis.word.take() {
            let process = &mut self.processes[process_of(owner)];
            if process.word.is_none_or(|(elder, _)| elder != owner) {
                process.word = Some((owner, fence));
            }
        }
        for process in &mut self.processes {
            // A word for an owner that the process is not in line as, nor will be.
            process.word = process.word.filter(|(owner, _)| {
                let asks = process.call.is_some_and(|call| {
                    call.owner == *owner || call.verb == Verb::Release { again: *owner }
                });
                process.at != At::Holds && (process.owner == *owner || asks)
                    || process.at == At::Holds && asks && process.owner != *owner
            });
            // What no longer makes a difference.
            let gives_back = matches!(process.call, Some(Call { verb: Verb::Release { .. }, .. }));
            if process.at != At::Holds || gives_back {
                process.fence = 0;
            }
            if process.at == At::Out || gives_back {
                process.left = 0;
            }
            if let Some(call) = &mut process.call
                && matches!(call.verb, Verb::Leave | Verb::Release { again: NOBODY })
            {
                call.age = 0;
            }
        }
        self.letters.sort_unstable();
        let mut names = [NOBODY; 3 * OWNERS as usize + 1];
        let mut next = [0; 3];
        self.owners(&mut |owner| {
            let who = process_of(*owner);
            let name = &mut names[usize::from(*owner)];
            if *name == NOBODY {
                next[who] += 1;
                *name = *owner - (*owner - 1) % OWNERS + next[who] - 1;
            }
            *owner = *name;
        });
        self.letters.sort_unstable();
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
    process.call = Some(Call { verb, owner, age: 0, phase: Phase::Sent });
}
