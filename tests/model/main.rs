//! Models of the lock and of the write rules as state machines, explored exhaustively.
//!
//! Every interleaving is explored: a failure that real processes show once in a million runs is
//! found here every time, with its shortest trace. Each invariant comes with *mutants*, rules with
//! one part removed, whose exploration must find a violation.
//!
//! This proves properties of the models. `differential.rs` in the tests of the lock crate compares
//! the Lua scripts with their model; whether the other models match the source must be checked by
//! reading both, and by the tests of the lock crate and `tests/it`.
//!
//! Not the crate `stateright`: its `eventually` does not examine cycles, which is where a waiter
//! starves, and the exploration from every reachable state that decides this question needs the
//! states themselves. Nothing is sampled, and states are compared as a whole, not by their hashes.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod actor;
mod database;
mod decide;
mod delegation;
mod engine;
mod forged_histories;
mod history;
mod protocol;
mod resolve;
mod scripts;
mod strategy;
mod unknown;
mod waiting;

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Steps, each with the state it leads to or the invariant it violates.
type Steps<P, S> = Vec<(P, Result<S, String>)>;

/// A state machine: its initial state, its steps, and its invariants.
trait Machine {
    type State: Clone + Eq + Hash + Debug;
    type Step: Clone + Display;

    fn start(&self) -> Self::State;

    /// All possible steps. An error is an invariant that the step itself violates.
    fn next(&self, state: &Self::State) -> Steps<Self::Step, Self::State>;

    /// The invariant that this state violates.
    fn violation(&self, state: &Self::State) -> Option<String>;
}

/// The shortest trace to a violated invariant.
#[derive(Debug)]
struct Counterexample {
    invariant: String,
    steps: Vec<String>,
}

/// All reachable states, in breadth-first order.
#[derive(Debug)]
struct Explored<S> {
    states: Vec<S>,
    transitions: usize,
}

/// Explores breadth-first, so that a counterexample is as short as possible.
fn explore<M: Machine>(machine: &M) -> Result<Explored<M::State>, Counterexample> {
    let mut known: HashSet<M::State, FastHash> = HashSet::default();
    let mut states = vec![machine.start()];
    let mut reached_from: Vec<Option<(usize, M::Step)>> = vec![None];
    let mut transitions = 0;
    known.insert(states[0].clone());
    let mut at = 0;
    while at < states.len() {
        for (step, next) in machine.next(&states[at]) {
            transitions += 1;
            let next = match next {
                Ok(next) => next,
                Err(invariant) => return Err(trace_to(&reached_from, at, Some(&step), invariant)),
            };
            if known.contains(&next) {
                continue;
            }
            let violation = machine.violation(&next);
            known.insert(next.clone());
            states.push(next);
            reached_from.push(Some((at, step)));
            if let Some(invariant) = violation {
                return Err(trace_to(&reached_from, states.len() - 1, None, invariant));
            }
        }
        at += 1;
    }
    Ok(Explored { states, transitions })
}

fn trace_to<S: Clone + Display>(
    reached_from: &[Option<(usize, S)>],
    mut at: usize,
    last: Option<&S>,
    invariant: String,
) -> Counterexample {
    let mut steps: Vec<String> = last.iter().map(ToString::to_string).collect();
    while let Some((from, step)) = &reached_from[at] {
        steps.push(step.to_string());
        at = *from;
    }
    steps.reverse();
    Counterexample { invariant, steps }
}

/// Asserts that no reachable state violates an invariant.
fn assert_holds<M: Machine>(name: &str, machine: &M) -> Explored<M::State> {
    let began = std::time::Instant::now();
    let explored = explore(machine).unwrap_or_else(|found| panic!("{name}: {found:#?}"));
    println!(
        "{name}: {} states, {} transitions, {:.1} s",
        explored.states.len(),
        explored.transitions,
        began.elapsed().as_secs_f32()
    );
    explored
}

/// Asserts that an invariant whose text contains `invariant` is violated. Returns the trace.
fn assert_breaks<M: Machine>(name: &str, machine: &M, invariant: &str) -> Vec<String> {
    let Err(found) = explore(machine) else { panic!("{name}: no violation was found") };
    println!("{name}: {} after: {}", found.invariant, found.steps.join(", "));
    assert!(found.invariant.contains(invariant), "{name}: another violation: {found:#?}");
    found.steps
}

/// A fast hash for small trusted states (`FxHash`): the exploration is bound by hashing.
#[derive(Default)]
struct Fx(u64);

type FastHash = BuildHasherDefault<Fx>;

impl Hasher for Fx {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_usize(number.cast_unsigned());
    }
}
