//! Liveness of the protocol: after the last fault, every waiter gets the lock.
//!
//! From every state that `protocol` can reach, faults end and time goes on in rounds: in a round
//! each living process does its next thing once, in any order, and then a tick passes. Words
//! between processes are all lost, so only polls move anything. The others are as unkind as they
//! may be: they queue again with every release, or are dead and say nothing more. All orders of all
//! rounds are followed until the waiter holds; a ring of rounds without that starves it.
//!
//! Proven: every living waiter gets the lock, within as many rounds as asserted. After everybody
//! has left, the lock's key is gone within its time to live, and the next caller gets the lock.
//!
//! Not proven: times in milliseconds, which `tests/lock` measures, and that polls do come: a
//! process whose poll waits for a moment without messages starves here (a mutant).

use std::collections::{HashMap, HashSet};

use crate::actor::{At, OUT, Phase, Protocol, State, send};
use crate::scripts::{Mutant, NOBODY, Rules, Verb};
use crate::{Quick, explore};

/// A lease without renewals, a grant to a dead waiter, and a turn of each other process. The value
/// is the result of the walk, kept here so that a change is noticed.
const ROUNDS: u8 = 7;

struct Rounds<'a> {
    protocol: &'a Protocol,
    waiter: usize,
    /// The other processes keep asking; otherwise they are dead.
    others_live: bool,
    /// Rounds until the waiter holds, at worst; none while they are being counted.
    known: HashMap<State, Option<u8>, Quick>,
}

impl Rounds<'_> {
    /// The most rounds it may take. An error is a state from which it may take for ever.
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
                    self.turn(&mut next, *who);
                }
                next.processes[self.waiter].at == At::Holds
            });
            let next = next.tick(self.protocol.rules, None).renamed();
            let rounds = if held { 1 } else { 1 + self.worst(&next)? };
            worst = worst.max(rounds);
        }
        self.known.insert(state.clone(), Some(worst));
        Ok(worst)
    }

    fn turn(&self, state: &mut State, who: usize) {
        let process = state.processes[who];
        let notified = state.redis.is_of(process.owner);
        match process.at {
            At::Out => {
                let Some(owner) = state.fresh(who) else { return };
                send(&mut state.processes[who], Verb::Acquire, owner);
            }
            At::InLine if self.protocol.rules.lack(Mutant::WordsPutOffThePoll) && !notified => {
                return;
            }
            At::InLine => send(&mut state.processes[who], Verb::Acquire, process.owner),
            At::Holds => {
                let again = state.fresh(who).unwrap_or(NOBODY);
                send(&mut state.processes[who], Verb::Release { again }, process.owner);
            }
        }
        finish(self.protocol, state, who);
    }
}

/// The call of a process is carried out and answered.
fn finish(protocol: &Protocol, state: &mut State, who: usize) {
    while let Some(call) = state.processes[who].call {
        let reply = match call.phase {
            Phase::Answered(reply) => reply,
            Phase::Sent => protocol.carry_out(&mut state.redis, call.verb, call.owner).unwrap(),
        };
        protocol.hear(state, who, call, reply).unwrap();
    }
}

/// Everything on the way arrives.
fn settled(protocol: &Protocol, state: &State) -> State {
    let mut settled = state.clone();
    for (verb, owner) in std::mem::take(&mut settled.letters) {
        protocol.carry_out(&mut settled.redis, verb, owner).unwrap();
    }
    for who in 0..settled.processes.len() {
        finish(protocol, &mut settled, who);
    }
    // Judged before; now only states that go on differently are to differ.
    settled.faults = 0;
    settled.last = 0;
    settled.renamed()
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

fn beginnings(protocol: &Protocol) -> Vec<State> {
    let explored = explore(protocol).unwrap();
    let mut beginnings: HashSet<State, Quick> = HashSet::default();
    for state in &explored.states {
        beginnings.insert(settled(protocol, state));
    }
    println!("{} beginnings from {} states", beginnings.len(), explored.states.len());
    beginnings.into_iter().collect()
}

/// The most rounds a waiter waits, or a state in which one starves.
fn longest_wait(protocol: &Protocol, beginnings: &[State]) -> Result<u8, State> {
    let mut longest = 0;
    for waiter in 0..protocol.processes {
        for others_live in [true, false] {
            let known = HashMap::default();
            let mut rounds = Rounds { protocol, waiter, others_live, known };
            for state in beginnings {
                if state.processes[waiter].at != At::Holds {
                    longest = longest.max(rounds.worst(state)?);
                }
            }
        }
    }
    Ok(longest)
}

/// All living processes leave, in this order; time passes; one process acquires.
fn everybody_leaves(protocol: &Protocol, state: &State, order: &[usize]) -> Result<(), String> {
    let rules: Rules = protocol.rules;
    let mut now = state.clone();
    for who in order {
        // A release may grant the lock to the next one, which releases it in turn.
        while now.processes[*who].at != At::Out {
            let process = &mut now.processes[*who];
            let release = Verb::Release { again: NOBODY };
            let verb = if process.at == At::Holds { release } else { Verb::Leave };
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
    now.processes[0] = OUT;
    let Some(owner) = now.fresh(0) else { return Ok(()) };
    send(&mut now.processes[0], Verb::Acquire, owner);
    finish(protocol, &mut now, 0);
    match now.processes[0].at {
        At::Holds => Ok(()),
        _ => Err(format!("who came later did not get it: {now:?}")),
    }
}

fn mutant(mutant: Mutant) -> Protocol {
    Protocol { passes: false, ..Protocol::mutant(mutant, 1) }
}

fn everybody_is_served(protocol: &Protocol) {
    let processes = protocol.processes;
    let beginnings = beginnings(protocol);
    let rounds = longest_wait(protocol, &beginnings);
    println!("{processes} processes: {rounds:?} rounds at most");
    assert!(rounds.is_ok_and(|rounds| rounds <= ROUNDS));
    for state in &beginnings {
        for order in orders(processes) {
            everybody_leaves(protocol, state, &order).unwrap();
        }
    }
}

#[test]
fn two_waiters_both_get_the_lock() {
    everybody_is_served(&Protocol { passes: false, ..Protocol::new(2, 1) });
}

#[test]
fn waiters_with_margins_get_the_lock() {
    let protocol = Protocol { passes: false, letters: 0, ..Protocol::new(2, 0) };
    everybody_is_served(&protocol.with_margins());
}

#[test]
fn three_waiters_all_get_the_lock() {
    everybody_is_served(&Protocol { passes: false, ..Protocol::new(3, 0) });
}

#[test]
fn waiter_without_polls_starves() {
    let protocol = mutant(Mutant::WordsPutOffThePoll);
    let starving = longest_wait(&protocol, &beginnings(&protocol)).unwrap_err();
    println!("starves from {starving:?}");
}

#[test]
fn grant_without_expiry_blocks_the_queue() {
    let protocol = mutant(Mutant::GrantsForEver);
    let beginnings = beginnings(&protocol);
    assert!(longest_wait(&protocol, &beginnings).is_err());
    let left = |state| everybody_leaves(&protocol, state, &[0, 1]).is_err();
    assert!(beginnings.iter().any(left));
}
