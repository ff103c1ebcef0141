//! The lock and the write rules as small machines, walked through completely.
//!
//! Every order of events is tried, not the likely ones: what a test with real processes meets once
//! in a million runs is met here every time, and the shortest way to it is printed. Each promise
//! comes with *mutants*, rules with one thing left out, and the walk must find what that breaks.
//!
//! It proves things about the machines. The scripts are compared with their machine by
//! `tests/lock/differential.rs`; that the others are what `src/` does is a matter of reading them
//! side by side, and of the tests in `tests/lock` and `tests/it`.
//!
//! The walker is a few dozen lines of our own and not the crate `stateright`: its `eventually` does
//! not look into cycles, which is where a waiter starves, and the walks from every reachable state
//! that answer that question here need the states themselves. Nothing is sampled, and states are
//! compared whole, not by their hashes.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../common/checker/mod.rs"]
mod checker;

mod actor;
mod database;
mod decide;
mod engine;
mod forged_histories;
mod protocol;
mod resolve;
mod scripts;
mod story;
mod strategy;
mod unknown;
mod waiting;

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Steps, and where each leads, or which promise it breaks.
type Steps<P, S> = Vec<(P, Result<S, String>)>;

/// A machine: where it begins, what may happen, and what must never be.
trait Machine {
    type State: Clone + Eq + Hash + Debug;
    type Step: Clone + Display;

    fn start(&self) -> Self::State;

    /// Everything that may happen next. An error is a promise that the step itself breaks.
    fn next(&self, state: &Self::State) -> Steps<Self::Step, Self::State>;

    /// The promise that this state breaks.
    fn broken(&self, state: &Self::State) -> Option<String>;
}

/// The shortest way to a broken promise.
#[derive(Debug)]
struct Counterexample {
    promise: String,
    steps: Vec<String>,
}

/// All states there are, nearest first.
#[derive(Debug)]
struct Explored<S> {
    states: Vec<S>,
    transitions: usize,
}

/// Breadth first, so that what is found is found the shortest way.
fn explore<M: Machine>(machine: &M) -> Result<Explored<M::State>, Counterexample> {
    let mut known: HashSet<M::State, Quick> = HashSet::default();
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
                Err(promise) => return Err(way(&reached_from, at, Some(&step), promise)),
            };
            if known.contains(&next) {
                continue;
            }
            let broken = machine.broken(&next);
            known.insert(next.clone());
            states.push(next);
            reached_from.push(Some((at, step)));
            if let Some(promise) = broken {
                return Err(way(&reached_from, states.len() - 1, None, promise));
            }
        }
        at += 1;
    }
    Ok(Explored { states, transitions })
}

fn way<S: Clone + Display>(
    reached_from: &[Option<(usize, S)>],
    mut at: usize,
    last: Option<&S>,
    promise: String,
) -> Counterexample {
    let mut steps: Vec<String> = last.iter().map(ToString::to_string).collect();
    while let Some((from, step)) = &reached_from[at] {
        steps.push(step.to_string());
        at = *from;
    }
    steps.reverse();
    Counterexample { promise, steps }
}

/// The walk ends without a broken promise.
fn holds<M: Machine>(name: &str, machine: &M) -> Explored<M::State> {
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

/// The walk finds a broken promise that says `promise`. The steps to it.
fn breaks<M: Machine>(name: &str, machine: &M, promise: &str) -> Vec<String> {
    let Err(found) = explore(machine) else { panic!("{name}: nothing was found") };
    println!("{name}: {} after: {}", found.promise, found.steps.join(", "));
    assert!(found.promise.contains(promise), "{name}: found something else: {found:#?}");
    found.steps
}

/// A fast hash for small trusted states (`FxHash`): the walk is bound by hashing.
#[derive(Default)]
struct Fx(u64);

type Quick = BuildHasherDefault<Fx>;

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
