//! Liveness of the protocol: after the last fault, every waiter gets the lock.
//!
//! From every state that `protocol` can reach, faults end and time passes in rounds: in a round
//! each live process takes its next step once, in any order, followed by a tick. All messages
//! between processes are lost, so only polls make progress. The other processes are the worst case:
//! they enqueue again with every release, or have crashed. All orders of all rounds are explored
//! until the waiter holds the lock; a cycle of rounds without that is starvation.
//!
//! Proven: every live waiter gets the lock, within the asserted number of rounds. After all
//! processes have left, the lock's key expires within its time to live, and the next caller gets
//! the lock.
//!
//! Not proven: times in milliseconds, which the tests of the lock crate measure, and that polls are
//! sent: a process that postpones its poll while messages arrive starves here (a mutant).

use std::collections::{HashMap, HashSet};

use crate::actor::{CallPhase, IDLE, LockState, Protocol, State, send};
use crate::scripts::{Mutant, NO_OWNER, Rules, Verb};
use crate::{FastHash, explore};

/// A lease without renewals, a grant to a dead waiter, and a lease of each other process. The value
/// is the result of the exploration, kept here so that a change is noticed.
const ROUNDS: u8 = 7;

struct Rounds<'a> {
    protocol: &'a Protocol,
    waiter: usize,
    /// The other processes keep acquiring the lock; otherwise they have crashed.
    others_live: bool,
    /// The maximum of rounds until the waiter holds the lock; `None` while it is being computed.
    known: HashMap<State, Option<u8>, FastHash>,
}

impl Rounds<'_> {
    /// Returns the maximum of rounds. An error is a state from which the waiter may starve.
    fn worst(&mut self, state: &State) -> Result<u8, State> {
        match self.known.get(state) {
            Some(Some(rounds)) => return Ok(*rounds),
            Some(None) => return Err(state.clone()),
            None => {}
        }
        self.known.insert(state.clone(), None);
        let mut worst = 0;
        for order in orders(state.processes.len()) {
            let mut next = state.clone();
            let held = order.iter().any(|who| {
                if *who == self.waiter || self.others_live {
                    self.take_step(&mut next, *who);
                }
                next.processes[self.waiter].at == LockState::Holding
            });
            let next = next.tick(self.protocol.rules, None).renamed();
            let rounds = if held { 1 } else { 1 + self.worst(&next)? };
            worst = worst.max(rounds);
        }
        self.known.insert(state.clone(), Some(worst));
        Ok(worst)
    }

    fn take_step(&self, state: &mut State, who: usize) {
        let process = state.processes[who];
        let notified = state.redis.is_held_by(process.owner);
        match process.at {
            LockState::Idle => {
                let Some(owner) = state.fresh(who) else { return };
                send(&mut state.processes[who], Verb::Acquire, owner);
            }
            LockState::Waiting
                if self.protocol.rules.has(Mutant::MessagesPostponePolls) && !notified =>
            {
                return;
            }
            LockState::Waiting => send(&mut state.processes[who], Verb::Acquire, process.owner),
            LockState::Holding => {
                let again = state.fresh(who).unwrap_or(NO_OWNER);
                send(&mut state.processes[who], Verb::Release { again }, process.owner);
            }
        }
        finish(self.protocol, state, who);
    }
}

/// Executes the pending calls of a process and delivers their replies.
fn finish(protocol: &Protocol, state: &mut State, who: usize) {
    while let Some(call) = state.processes[who].call {
        let reply = match call.phase {
            CallPhase::Replied(reply) => reply,
            CallPhase::Sent => protocol.execute(&mut state.redis, call.verb, call.owner).unwrap(),
        };
        protocol.receive_reply(state, who, call, reply).unwrap();
    }
}

/// Delivers everything in flight.
fn drained(protocol: &Protocol, state: &State) -> State {
    let mut drained = state.clone();
    for (verb, owner) in std::mem::take(&mut drained.abandoned_calls) {
        protocol.execute(&mut drained.redis, verb, owner).unwrap();
    }
    for who in 0..drained.processes.len() {
        finish(protocol, &mut drained, who);
    }
    // Checked by `protocol`; here only states with different futures must differ.
    drained.faults = 0;
    drained.last_fence = 0;
    drained.renamed()
}

/// Every permutation of `of` processes.
fn orders(of: usize) -> Vec<Vec<usize>> {
    let Some(last) = of.checked_sub(1) else { return vec![Vec::new()] };
    let into = |order: Vec<usize>| {
        (0..of).map(move |at| {
            let mut longer = order.clone();
            longer.insert(at, last);
            longer
        })
    };
    orders(last).into_iter().flat_map(into).collect()
}

fn initial_states(protocol: &Protocol) -> Vec<State> {
    let explored = explore(protocol).unwrap();
    let mut initial_states: HashSet<State, FastHash> = HashSet::default();
    for state in &explored.states {
        initial_states.insert(drained(protocol, state));
    }
    println!("{} initial states from {} states", initial_states.len(), explored.states.len());
    initial_states.into_iter().collect()
}

/// Returns the maximum of rounds that a waiter waits, or a state in which one starves.
fn longest_wait(protocol: &Protocol, initial_states: &[State]) -> Result<u8, State> {
    let mut longest = 0;
    for waiter in 0..protocol.processes {
        for others_live in [true, false] {
            let known = HashMap::default();
            let mut rounds = Rounds { protocol, waiter, others_live, known };
            for state in initial_states {
                if state.processes[waiter].at != LockState::Holding {
                    longest = longest.max(rounds.worst(state)?);
                }
            }
        }
    }
    Ok(longest)
}

/// All live processes leave, in this order; time passes; one process acquires the lock.
fn all_processes_leave(protocol: &Protocol, state: &State, order: &[usize]) -> Result<(), String> {
    let rules: Rules = protocol.rules;
    let mut now = state.clone();
    for who in order {
        // A release may grant the lock to the next waiter, which then releases it.
        while now.processes[*who].at != LockState::Idle {
            let process = &mut now.processes[*who];
            let release = Verb::Release { again: NO_OWNER };
            let verb = if process.at == LockState::Holding { release } else { Verb::Leave };
            send(process, verb, process.owner);
            finish(protocol, &mut now, *who);
        }
    }
    for _ in 0..rules.times.ttl {
        now = now.tick(rules, None);
    }
    if now.redis.lock.is_some() {
        return Err(format!("left behind: {now:?}"));
    }
    now.processes[0] = IDLE;
    let Some(owner) = now.fresh(0) else { return Ok(()) };
    send(&mut now.processes[0], Verb::Acquire, owner);
    finish(protocol, &mut now, 0);
    match now.processes[0].at {
        LockState::Holding => Ok(()),
        _ => Err(format!("a later caller did not get it: {now:?}")),
    }
}

fn mutant(mutant: Mutant) -> Protocol {
    Protocol { hands_off: false, ..Protocol::mutant(mutant, 1) }
}

fn assert_all_are_served(protocol: &Protocol) {
    let processes = protocol.processes;
    let initial_states = initial_states(protocol);
    let rounds = longest_wait(protocol, &initial_states);
    println!("{processes} processes: {rounds:?} rounds at most");
    assert!(rounds.is_ok_and(|rounds| rounds <= ROUNDS));
    for state in &initial_states {
        for order in orders(processes) {
            all_processes_leave(protocol, state, &order).unwrap();
        }
    }
}

#[test]
fn two_waiters_both_get_the_lock() {
    assert_all_are_served(&Protocol { hands_off: false, ..Protocol::new(2, 1) });
}

#[test]
fn waiters_with_margins_get_the_lock() {
    let protocol = Protocol { hands_off: false, abandoned_calls: 0, ..Protocol::new(2, 0) };
    assert_all_are_served(&protocol.with_margins());
}

#[test]
fn three_waiters_all_get_the_lock() {
    assert_all_are_served(&Protocol { hands_off: false, ..Protocol::new(3, 0) });
}

#[test]
fn waiter_without_polls_starves() {
    let protocol = mutant(Mutant::MessagesPostponePolls);
    let starving = longest_wait(&protocol, &initial_states(&protocol)).unwrap_err();
    println!("starves from {starving:?}");
}

#[test]
fn grant_without_expiry_blocks_the_queue() {
    let protocol = mutant(Mutant::GrantsNeverExpire);
    let initial_states = initial_states(&protocol);
    assert!(longest_wait(&protocol, &initial_states).is_err());
    let left = |state| all_processes_leave(&protocol, state, &[0, 1]).is_err();
    assert!(initial_states.iter().any(left));
}
