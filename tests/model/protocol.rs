//! Safety of the protocol: a process that considers itself the holder is the holder in Redis.
//!
//! Two or three processes (`actor`) and one Redis (`scripts`). Time may pass at any moment, and
//! commands and replies take any time. Faults: a command is lost, executed without a reply, or
//! executed long after its sender gave up; a process crashes and another one starts in its place.
//! *Granted* messages arrive at any time, or never.
//!
//! Proven over all interleavings: the process that considers itself the holder is the holder in
//! Redis; fences of guards grow; a grant goes to the first live waiter, and no newcomer overtakes;
//! a script that runs twice in a row has the effect of one run.
//!
//! Not proven: more faults or abandoned commands than the tests configure; clocks that drift
//! further than a deadline allows, and a Redis that loses its data (mutants here: the row's version
//! protects the rows).

use crate::actor::*;
use crate::scripts::{FENCES_PER_GRANT, Mutant, NO_OWNER, Redis, Reply, Rules, Verb};
use crate::{Machine, Steps, assert_breaks, assert_holds};

type Outcomes = Vec<(&'static str, Result<State, String>)>;

impl Protocol {
    /// The steps that a process takes on its own.
    fn own_steps(&self, state: &State, who: usize) -> Outcomes {
        let process = state.processes[who];
        let mut steps = Vec::new();
        let mut sends = |name, verb, owner| {
            let mut next = state.clone();
            send(&mut next.processes[who], verb, owner);
            steps.push((name, Ok(next)));
        };
        let fresh = state.fresh(who);
        match process.at {
            LockState::Idle => {
                if let Some(owner) = fresh {
                    sends("acquire", Verb::Acquire, owner);
                    if self.tries {
                        sends("try", Verb::Try, owner);
                    }
                }
            }
            LockState::Waiting => {
                sends("poll", Verb::Acquire, process.owner);
                if state.redis.is_held_by(process.owner) {
                    sends("confirm", Verb::Confirm, process.owner);
                }
                sends("leave", Verb::Leave, process.owner);
                if process.message.is_some() {
                    let mut next = state.clone();
                    let received = self.receive_grant(&mut next, who);
                    steps.push(("receive the grant", received.map(|()| next)));
                }
                if let Some(lock) = state.redis.lock
                    && lock.owner == process.owner
                    && self.rules.has(Mutant::HintCountsAsGrant)
                {
                    let mut next = state.clone();
                    let call = Call {
                        verb: Verb::Confirm,
                        owner: lock.owner,
                        age: 0,
                        phase: CallPhase::Sent,
                    };
                    let held = self.begin_lease(&mut next, who, call, lock.fence);
                    steps.push(("treat the hint as a grant", held.map(|()| next)));
                }
            }
            LockState::Holding => {
                sends("release", Verb::Release { again: NO_OWNER }, process.owner);
                if let Some(again) = fresh {
                    sends("release and enqueue", Verb::Release { again }, process.owner);
                }
                if process.left > 0 {
                    sends("renew", Verb::Confirm, process.owner);
                }
                steps.push(("abandon", Ok(state.with(who, IDLE))));
                if self.hands_off && process.fence % FENCES_PER_GRANT + 1 < FENCES_PER_GRANT {
                    let mut next = state.clone();
                    next.processes[who].fence += 1;
                    let handed = self.hand_out_guard(&mut next, who);
                    steps.push(("hand off", handed.map(|()| next)));
                }
            }
        }
        steps
    }

    /// The possible outcomes of a call. A negative reply is received at once, and a missing reply
    /// is noticed at once: the process may be idle afterwards for as long as it possible have
    /// waited.
    fn outcomes(&self, state: &State, who: usize, call: Call) -> Outcomes {
        let CallPhase::Replied(reply) = call.phase else {
            return self.outcomes_of_sent_call(state, who, call);
        };
        let mut received = state.clone();
        let result = self.receive_reply(&mut received, who, call, reply);
        let mut outcomes = vec![("receive the reply to", result.map(|()| received))];
        if state.faults > 0 {
            outcomes.extend(self.missing_reply("lose the reply to", state, who, call));
        }
        outcomes
    }

    fn outcomes_of_sent_call(&self, state: &State, who: usize, call: Call) -> Outcomes {
        let mut outcomes = Vec::new();
        let mut done = state.clone();
        match self.execute(&mut done.redis, call.verb, call.owner) {
            Err(invariant) => outcomes.push(("execute", Err(invariant))),
            Ok(Reply::NotHeld) => {
                if state.faults > 0 {
                    outcomes.extend(self.missing_reply(
                        "execute, but do not reply to,",
                        &done,
                        who,
                        call,
                    ));
                }
                let received = self.receive_reply(&mut done, who, call, Reply::NotHeld);
                outcomes.push(("execute and reject", received.map(|()| done)));
            }
            Ok(reply) => {
                done.processes[who].call = Some(Call { phase: CallPhase::Replied(reply), ..call });
                outcomes.push(("execute", Ok(done)));
            }
        }
        if state.faults > 0 {
            outcomes.extend(self.missing_reply("lose the command of", state, who, call));
            let mut late = state.clone();
            if late.abandon(call.verb, call.owner) {
                outcomes.extend(self.missing_reply("delay the command of", &late, who, call));
            }
        }
        outcomes
    }

    /// No reply arrives: the process gives up, or sends the call again.
    fn missing_reply(&self, name: &'static str, state: &State, who: usize, call: Call) -> Outcomes {
        let mut given_up = state.clone().at_fault();
        self.give_up(&mut given_up, who, call);
        let mut outcomes = vec![(name, Ok(given_up))];
        if self.repeats {
            let mut repeated = state.clone().at_fault();
            repeated.processes[who].call = Some(Call { phase: CallPhase::Sent, ..call });
            outcomes.push((name, Ok(repeated)));
        }
        outcomes
    }

    /// Events that a process does not cause: time, faults, and late calls.
    fn external_steps(&self, state: &State) -> Steps<Step, State> {
        let mut external_steps = vec![(Step("tick", 0), Ok(state.tick(self.rules, None)))];
        for (at, (verb, owner)) in state.abandoned_calls.iter().enumerate() {
            let mut lost = state.clone();
            lost.abandoned_calls.remove(at);
            let mut executed = lost.clone();
            let done = self.execute(&mut executed.redis, *verb, *owner).map(|_| executed);
            let who = process_of(*owner);
            external_steps.push((Step("never execute the late command of", who), Ok(lost)));
            external_steps.push((Step("execute the late command of", who), done));
        }
        if state.faults == 0 {
            return external_steps;
        }
        for (who, process) in state.processes.iter().enumerate() {
            let died = state.with(who, IDLE).at_fault();
            if let Some(Call { verb, owner, phase: CallPhase::Sent, .. }) = process.call {
                let mut late = died.clone();
                if late.abandon(verb, owner) {
                    external_steps.push((Step("crash, having sent,", who), Ok(late)));
                }
            }
            external_steps.push((Step("crash", who), Ok(died)));
            if self.rules.has(Mutant::ClockRunsSlow) {
                external_steps.push((
                    Step("tick for all but", who),
                    Ok(state.tick(self.rules, Some(who)).at_fault()),
                ));
            }
        }
        if self.rules.has(Mutant::RedisLosesData) {
            let mut flushed = state.clone().at_fault();
            flushed.redis.lock = None;
            flushed.redis.queue.clear();
            external_steps.push((Step("flush", 0), Ok(flushed)));
        }
        external_steps
    }
}

impl Machine for Protocol {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            redis: Redis { lock: None, queue: Vec::new(), grants: 0, message: None },
            processes: vec![IDLE; self.processes],
            abandoned_calls: Vec::new(),
            max_abandoned_calls: self.abandoned_calls,
            last_fence: 0,
            faults: self.faults,
        }
    }

    fn next(&self, state: &State) -> Steps<Step, State> {
        let mut steps = self.external_steps(state);
        for (who, process) in state.processes.iter().enumerate() {
            let possible = match process.call {
                Some(call) => self.outcomes(state, who, call),
                None => self.own_steps(state, who),
            };
            steps.extend(possible.into_iter().map(|(name, next)| (Step(name, who), next)));
        }
        steps.into_iter().map(|(step, next)| (step, next.map(State::renamed))).collect()
    }

    fn violation(&self, state: &State) -> Option<String> {
        let lock = state.redis.lock;
        let is_releasing = |process: &Process| {
            matches!(process.call, Some(Call { verb: Verb::Release { .. }, .. }))
        };
        for (who, process) in state.processes.iter().enumerate() {
            let is_holder =
                process.at == LockState::Holding && process.left > 0 && !is_releasing(process);
            if is_holder && lock.is_none_or(|lock| lock.owner != process.owner) {
                return Some(format!("{} considers itself the holder and is not", who + 1));
            }
        }
        let holder_waits =
            state.redis.queue.iter().any(|waiting| lock.is_some_and(|l| l.owner == waiting.owner));
        holder_waits.then(|| "a holder waits behind itself".to_owned())
    }
}

#[test]
fn two_processes_never_both_hold() {
    assert_holds("two processes, no fault but time", &Protocol::new(2, 0));
    let protocol = Protocol { hands_off: false, ..Protocol::new(2, 1) };
    assert_holds("two processes, one fault", &protocol);
}

/// The actor does not use a lease, nor a granted lock, of which less than a third is left.
#[test]
fn two_processes_with_margins_never_both_hold() {
    let protocol = Protocol::new(2, 0).with_margins();
    let times = protocol.rules.times;
    assert!(times.grant / 3 > 0 && times.ttl / 3 > 0 && times.grant < times.ttl);
    assert_holds("margins, no fault but time", &protocol);
    let protocol = Protocol { hands_off: false, abandoned_calls: 0, ..Protocol::new(2, 1) };
    assert_holds("margins, one fault", &protocol.with_margins());
}

#[test]
fn three_processes_never_all_hold() {
    assert_holds("three processes, no fault but time", &Protocol::three_processes());
}

#[test]
fn each_mutant_violates_an_invariant() {
    let held = "considers itself the holder and is not";
    for (mutant, invariant) in [
        (Mutant::ReleaseIgnoresOwner, held),
        (Mutant::ReleaseIgnoresQueue, "overtook a waiter"),
        (Mutant::GrantsToDeadWaiters, "granted to a dead waiter"),
        (Mutant::OvertakesWaiters, "overtook a waiter"),
        (Mutant::LeaveStaysQueued, "still queued"),
        (Mutant::FencesDoNotGrow, "guards with fences"),
        (Mutant::HintCountsAsGrant, held),
        (Mutant::StaleMessageCounts, held),
        (Mutant::DeadlineFromReply, held),
        (Mutant::LeaseIsNotChecked, "guards with fences"),
        (Mutant::ClockRunsSlow, held),
        (Mutant::RedisLosesData, held),
    ] {
        assert_breaks(&format!("{mutant:?}"), &Protocol::mutant(mutant, 2), invariant);
    }
}

/// The owner of a try is not enqueued, so the try itself must drop dead waiters.
#[test]
fn dead_waiters_do_not_block_a_try() {
    let tries = Protocol { tries: true, hands_off: false, ..Protocol::new(2, 1) };
    assert_holds("a try that drops dead waiters", &tries);
    let rules = Rules { try_drops_dead_waiters: false, ..CURRENT_RULES };
    assert_breaks("a try", &Protocol { rules, ..tries }, "a try was rejected");
}

/// A call whose reply was lost may be sent again.
#[test]
fn scripts_are_idempotent() {
    let repeats = Protocol { repeats: true, hands_off: false, ..Protocol::new(2, 1) };
    assert_holds("repeated", &repeats);
    for rules in [
        Rules { requeue_unless_held: false, ..CURRENT_RULES },
        Rules { release_dequeues_owner: false, ..CURRENT_RULES },
    ] {
        assert_breaks("repeated", &Protocol { rules, ..repeats }, "when repeated");
    }
}
