//! The protocol between processes: a process that believes it holds the lock does hold it.
//!
//! Two or three processes (`actor`) against one Redis (`scripts`). At any moment time passes, and
//! answers and commands take as long as they like. Faults: a command is lost, is carried out and
//! not answered, or is carried out long after its sender gave up; a process dies and another one
//! starts in its place. Messages (*granted*) come at any time, or never.
//!
//! Proven, over all orders of these: the process that believes it holds is the one that Redis has
//! as holder; fences of guards grow; a grant goes to the first waiter in line that is alive, and no
//! newcomer overtakes; a script that is run twice in a row is as one run.
//!
//! Not proven: more faults or abandoned commands than the tests say; clocks that drift further than
//! a deadline allows, and a Redis that forgets (mutants here: the row's version saves the rows).

use crate::actor::*;
use crate::scripts::{FENCES_PER_GRANT, Mutant, NOBODY, Redis, Reply, Rules, Verb};
use crate::{Machine, Steps, breaks, holds};

type Fates = Vec<(&'static str, Result<State, String>)>;

impl Protocol {
    /// The steps that a process takes by itself.
    fn acts(&self, state: &State, who: usize) -> Fates {
        let process = state.processes[who];
        let mut acts = Vec::new();
        let mut sends = |name, verb, owner| {
            let mut next = state.clone();
            send(&mut next.processes[who], verb, owner);
            acts.push((name, Ok(next)));
        };
        let fresh = state.fresh(who);
        match process.at {
            At::Out => {
                if let Some(owner) = fresh {
                    sends("ask", Verb::Acquire, owner);
                    if self.tries {
                        sends("try", Verb::Try, owner);
                    }
                }
            }
            At::InLine => {
                sends("poll", Verb::Acquire, process.owner);
                if state.redis.is_of(process.owner) {
                    sends("confirm", Verb::Confirm, process.owner);
                }
                sends("leave", Verb::Leave, process.owner);
                if process.word.is_some() {
                    let mut next = state.clone();
                    let heard = self.hear_word(&mut next, who);
                    acts.push(("hear the word", heard.map(|()| next)));
                }
                if let Some(lock) = state.redis.lock
                    && lock.owner == process.owner
                    && self.rules.lack(Mutant::HintIsTakenForAGrant)
                {
                    let mut next = state.clone();
                    let call =
                        Call { verb: Verb::Confirm, owner: lock.owner, age: 0, phase: Phase::Sent };
                    let held = self.hold(&mut next, who, call, lock.fence);
                    acts.push(("believe", held.map(|()| next)));
                }
            }
            At::Holds => {
                sends("give back", Verb::Release { again: NOBODY }, process.owner);
                if let Some(again) = fresh {
                    sends("give back and queue", Verb::Release { again }, process.owner);
                }
                if process.left > 0 {
                    sends("renew", Verb::Confirm, process.owner);
                }
                acts.push(("abandon", Ok(state.with(who, OUT))));
                if self.passes && process.fence % FENCES_PER_GRANT + 1 < FENCES_PER_GRANT {
                    let mut next = state.clone();
                    next.processes[who].fence += 1;
                    let handed = self.hand_out(&mut next, who);
                    acts.push(("pass", handed.map(|()| next)));
                }
            }
        }
        acts
    }

    /// The possible outcomes of a call. A negative response is received at once, and silence
    /// noticed at once: a process may be idle afterwards for as long as it might have waited
    /// before.
    fn fates(&self, state: &State, who: usize, call: Call) -> Fates {
        let Phase::Answered(reply) = call.phase else {
            return self.fates_of_sent(state, who, call);
        };
        let mut heard = state.clone();
        let result = self.hear(&mut heard, who, call, reply);
        let mut fates = vec![("answer", result.map(|()| heard))];
        if state.faults > 0 {
            fates.extend(self.silence("lose the answer to", state, who, call));
        }
        fates
    }

    fn fates_of_sent(&self, state: &State, who: usize, call: Call) -> Fates {
        let mut fates = Vec::new();
        let mut done = state.clone();
        match self.carry_out(&mut done.redis, call.verb, call.owner) {
            Err(promise) => fates.push(("carry out", Err(promise))),
            Ok(Reply::No) => {
                if state.faults > 0 {
                    fates.extend(self.silence("carry out, but do not answer,", &done, who, call));
                }
                let heard = self.hear(&mut done, who, call, Reply::No);
                fates.push(("carry out and refuse", heard.map(|()| done)));
            }
            Ok(reply) => {
                done.processes[who].call = Some(Call { phase: Phase::Answered(reply), ..call });
                fates.push(("carry out", Ok(done)));
            }
        }
        if state.faults > 0 {
            fates.extend(self.silence("lose the command of", state, who, call));
            let mut late = state.clone();
            if late.post(call.verb, call.owner) {
                fates.extend(self.silence("delay the command of", &late, who, call));
            }
        }
        fates
    }

    /// No answer comes: the process gives up, or repeats itself.
    fn silence(&self, name: &'static str, state: &State, who: usize, call: Call) -> Fates {
        let mut gives_up = state.clone().at_fault();
        self.despair(&mut gives_up, who, call);
        let mut silence = vec![(name, Ok(gives_up))];
        if self.repeats {
            let mut repeated = state.clone().at_fault();
            repeated.processes[who].call = Some(Call { phase: Phase::Sent, ..call });
            silence.push((name, Ok(repeated)));
        }
        silence
    }

    /// Events that a process does not cause: time, faults, and late calls.
    fn accidents(&self, state: &State) -> Steps<Step, State> {
        let mut accidents = vec![(Step("tick", 0), Ok(state.tick(self.rules, None)))];
        for (at, (verb, owner)) in state.letters.iter().enumerate() {
            let mut lost = state.clone();
            lost.letters.remove(at);
            let mut carried = lost.clone();
            let done = self.carry_out(&mut carried.redis, *verb, *owner).map(|_| carried);
            let who = process_of(*owner);
            accidents.push((Step("never carry out the late command of", who), Ok(lost)));
            accidents.push((Step("carry out the late command of", who), done));
        }
        if state.faults == 0 {
            return accidents;
        }
        for (who, process) in state.processes.iter().enumerate() {
            let died = state.with(who, OUT).at_fault();
            if let Some(Call { verb, owner, phase: Phase::Sent, .. }) = process.call {
                let mut late = died.clone();
                if late.post(verb, owner) {
                    accidents.push((Step("crash, having sent,", who), Ok(late)));
                }
            }
            accidents.push((Step("crash", who), Ok(died)));
            if self.rules.lack(Mutant::ClockRunsSlow) {
                accidents.push((
                    Step("tick for all but", who),
                    Ok(state.tick(self.rules, Some(who)).at_fault()),
                ));
            }
        }
        if self.rules.lack(Mutant::RedisForgets) {
            let mut flushed = state.clone().at_fault();
            flushed.redis.lock = None;
            flushed.redis.queue.clear();
            accidents.push((Step("flush", 0), Ok(flushed)));
        }
        accidents
    }
}

impl Machine for Protocol {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            redis: Redis { lock: None, queue: Vec::new(), grants: 0, word: None },
            processes: vec![OUT; self.processes],
            letters: Vec::new(),
            room: self.letters,
            last: 0,
            faults: self.faults,
        }
    }

    fn next(&self, state: &State) -> Steps<Step, State> {
        let mut steps = self.accidents(state);
        for (who, process) in state.processes.iter().enumerate() {
            let could = match process.call {
                Some(call) => self.fates(state, who, call),
                None => self.acts(state, who),
            };
            steps.extend(could.into_iter().map(|(name, next)| (Step(name, who), next)));
        }
        steps.into_iter().map(|(step, next)| (step, next.map(State::renamed))).collect()
    }

    fn broken(&self, state: &State) -> Option<String> {
        let lock = state.redis.lock;
        let gives_back = |process: &Process| {
            matches!(process.call, Some(Call { verb: Verb::Release { .. }, .. }))
        };
        for (who, process) in state.processes.iter().enumerate() {
            let believes = process.at == At::Holds && process.left > 0 && !gives_back(process);
            if believes && lock.is_none_or(|lock| lock.owner != process.owner) {
                return Some(format!("{} believes that it holds what it does not", who + 1));
            }
        }
        let holder_waits =
            state.redis.queue.iter().any(|waiting| lock.is_some_and(|l| l.owner == waiting.owner));
        holder_waits.then(|| "a holder stands in line behind itself".to_owned())
    }
}

#[test]
fn two_processes_never_both_hold() {
    holds("two processes, no fault but time", &Protocol::new(2, 0));
    let protocol = Protocol { passes: false, ..Protocol::new(2, 1) };
    holds("two processes, one fault", &protocol);
}

/// The actor does not use a lease, nor a granted lock, of which less than a third is left.
#[test]
fn two_processes_with_margins_never_both_hold() {
    let protocol = Protocol::new(2, 0).with_margins();
    let times = protocol.rules.times;
    assert!(times.grant / 3 > 0 && times.ttl / 3 > 0 && times.grant < times.ttl);
    holds("margins, no fault but time", &protocol);
    let protocol = Protocol { passes: false, letters: 0, ..Protocol::new(2, 1) };
    holds("margins, one fault", &protocol.with_margins());
}

#[test]
fn three_processes_never_all_hold() {
    holds("three processes, no fault but time", &Protocol::of_three());
}

#[test]
fn each_mutant_breaks_a_promise() {
    let held = "believes that it holds what it does not";
    for (mutant, promise) in [
        (Mutant::ReleaseIgnoresTheOwner, held),
        (Mutant::ReleaseIgnoresTheLine, "barged"),
        (Mutant::GrantsToTheUnseen, "granted to the dead"),
        (Mutant::Barges, "barged"),
        (Mutant::LeaveStaysInLine, "still in line"),
        (Mutant::FencesStandStill, "guards with fences"),
        (Mutant::HintIsTakenForAGrant, held),
        (Mutant::WordOfAnyGrant, held),
        (Mutant::DeadlineFromTheAnswer, held),
        (Mutant::GuardsAreNotLookedAt, "guards with fences"),
        (Mutant::ClockRunsSlow, held),
        (Mutant::RedisForgets, held),
    ] {
        breaks(&format!("{mutant:?}"), &Protocol::mutant(mutant, 2), promise);
    }
}

/// The owner of a try is not put in line, so it must itself drop those who are dead there.
#[test]
fn dead_waiters_do_not_block_a_try() {
    let tries = Protocol { tries: true, passes: false, ..Protocol::new(2, 1) };
    holds("a try that sees the dead", &tries);
    let rules = Rules { try_sees_the_dead: false, ..AS_IT_IS };
    breaks("a try", &Protocol { rules, ..tries }, "a try was refused");
}

/// An answer that was lost may be asked for again.
#[test]
fn scripts_are_idempotent() {
    let repeats = Protocol { repeats: true, passes: false, ..Protocol::new(2, 1) };
    holds("repeated", &repeats);
    for rules in [
        Rules { again_unless_held: false, ..AS_IT_IS },
        Rules { release_forgets: false, ..AS_IT_IS },
    ] {
        breaks("repeated", &Protocol { rules, ..repeats }, "when repeated");
    }
}
