//! Interleavings of the real actor: its tasks, its callers and its listener, on the real client of
//! Redis, with streams in memory instead of sockets.
//!
//! A hand-made scheduler, and not `shuttle`: shuttle runs a program with its own tokio and
//! `parking_lot`, but does not model time. Its timers need not fire, and do not fire in an order,
//! while everything that a lease promises is about time: the deadline, the renewal in time, the
//! late response. The driver of redis-rs could not run on it either. So
//! `time::virtual_clock` lets tasks run in a random order, on a clock that moves only when none can
//! run, and [`server`] delays commands, responses and messages against each other. What this does
//! not reorder are two threads within one poll; the locks of the map of actors are for those.
//!
//! Nothing here says what Redis does: [`model`] only answers as the scripts would. The tests in
//! `tests/lock` run on real servers.
//!
//! A failure prints its seed. `HOLDFAST_TEST_SEED` repeats it with the trace, and
//! `HOLDFAST_TEST_SEEDS` explores as many as it says.

mod clients;
mod model;
mod server;

use std::collections::BTreeMap;

use crate::seeded::Bug;
use clients::{Mode, explore};

/// With the number of seeds of a usual run: where things fail, an order takes longer.
const MODES: [(Mode, u64); 3] = [(Mode::Calm, 40), (Mode::Faulty, 10), (Mode::Losing, 6)];
/// From the first one that showed the bug on: another one shows it if the callers change.
const MAX_SEEDS: u64 = 400;

fn seeds(default: u64) -> std::ops::Range<u64> {
    let named = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match named("HOLDFAST_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..named("HOLDFAST_TEST_SEEDS").unwrap_or(default),
    }
}

#[test]
fn every_order_keeps_the_rules() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (mode, usual) in MODES {
        let began = std::time::Instant::now();
        for seed in seeds(usual) {
            if !seeds(0).is_empty() {
                println!("{mode:?}, seed {seed}");
            }
            let trace = explore(mode, seed, None).unwrap_or_else(|broken| panic!("{broken}"));
            for (what, count) in trace.counts {
                *counts.entry(what).or_default() += count;
            }
        }
        println!("{mode:?}: {:?}", began.elapsed());
    }

    println!("{counts:?}");
    if seeds(0).is_empty() {
        for what in [
            "free",
            "local_handoff",
            "remote_handoff",
            "poll",
            "renewed",
            "found lost",
            "cancelled",
            "release cancelled",
            "left to expire",
            "raised",
            "error",
            "unknown",
            "closed",
        ] {
            assert!(counts.contains_key(what), "no order had {what}: {counts:?}");
        }
    }
}

#[test]
fn each_seeded_bug_is_found() {
    // The lock is left when the last caller was cancelled; else the others wait for it in vain.
    let leaks = ["no caller", "held by another owner"].as_slice();
    for (bug, mode, first_seed, rules) in [
        (Bug::CancelLeaksLease, Mode::Calm, 0, leaks),
        (Bug::LostWakeup, Mode::Calm, 1, &["only a poll"]),
        (Bug::HeldWhileClosed, Mode::Calm, 118, &["hold the lock"]),
        (Bug::HandoffToTwo, Mode::Losing, 17, &["have one lease"]),
        (Bug::RenewalAfterLoss, Mode::Faulty, 1, &["held again"]),
    ] {
        let mut broken = (first_seed..first_seed + MAX_SEEDS).filter_map(|seed| {
            let found = explore(mode, seed, Some(bug)).err()?;
            let last = found.lines().last()?.to_owned();
            Some((seed, last)).filter(|(_, last)| rules.iter().any(|rule| last.contains(rule)))
        });
        let Some((seed, found)) = broken.next() else { panic!("{bug:?} was not found") };
        println!("{bug:?}, seed {seed}: {found}");
    }
}

#[test]
fn same_seed_is_the_same_order() {
    for (mode, _) in MODES {
        let [first, second] = [(); 2].map(|()| explore(mode, 7, None).expect("it keeps the rules"));
        assert_eq!(first.lines, second.lines, "{mode:?}");
    }
}
