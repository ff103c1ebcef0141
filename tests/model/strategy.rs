//! The default strategy from end to end: lock, fence, guarded write, key records, resolution.
//!
//! Two or three holders, with the same idempotency key, different ones, or a batch of both, while
//! leases end, replies are late, connections are lost and Redis is flushed with its fences. Holds
//! over all interleavings; what each part contributes is shown by leaving it out: the version is
//! what loses no sale, however the lock fails; the fence rejects a holder that was overtaken.

use crate::database::Guard;
use crate::engine::{Engine, Phase, State};
use crate::resolve::Resolution;
use crate::{assert_breaks, assert_holds, explore};

const ONE: u8 = 0b01;
const OTHER: u8 = 0b10;
const BATCH: u8 = ONE | OTHER;
const THIRD: u8 = 0b100;

#[test]
fn two_holders_keep_every_promise() {
    for keys in [[ONE, ONE], [ONE, OTHER], [BATCH, ONE], [BATCH, BATCH]] {
        assert_holds(&format!("two holders, keys {keys:?}"), &Engine::fenced(&keys));
    }
}

/// Each holder's second batch has a key that the other one has too, or an own one.
#[test]
fn second_batch_without_a_read_keeps_every_promise() {
    for keys in [[ONE, OTHER], [ONE, THIRD], [BATCH, THIRD]] {
        let engine = Engine { then: THIRD, attempts: 1, faults: 1, ..Engine::fenced(&keys) };
        assert_holds(&format!("a second batch, keys {keys:?}"), &engine);
    }

    // Others write between the two batches.
    let engine = Engine { then: THIRD, faults: 0, ..Engine::fenced(&[ONE, OTHER]) };
    let explored = explore(&engine).unwrap();
    let is_outdated = |state: &State| {
        let version = state.database.row.version;
        let mut kept = state.processes.iter();
        kept.any(|process| matches!(process.at, Phase::Kept(row) if row.version != version))
    };
    assert!(explored.states.iter().any(is_outdated));
}

/// The only fault is a lease that ended early.
#[test]
fn fence_alone_loses_a_sale() {
    for guard in [Guard::Nothing, Guard::Fence] {
        let engine = Engine { guard, faults: 0, flushes: 0, ..Engine::fenced(&[ONE, OTHER]) };
        let steps = assert_breaks(&format!("{guard:?}"), &engine, "a lost update");
        let is_access = |step: &&String| step.starts_with("read") || step.starts_with("commit");
        let accesses: Vec<&str> = steps.iter().filter(is_access).map(String::as_str).collect();
        let expected = ["read 1", "read 2", "commit the write of 1", "commit the write of 2"];
        assert_eq!(accesses, expected);
    }
}

#[test]
fn version_alone_accepts_a_late_holder() {
    let version = || Engine { guard: Guard::Version, ..Engine::fenced(&[ONE, OTHER]) };
    assert_holds("version alone", &Engine { in_order: false, ..version() });
    assert_breaks("version alone", &version(), "a late holder wrote after a later one");
}

#[test]
fn three_holders_keep_every_promise() {
    let engine = Engine { attempts: 1, faults: 1, ..Engine::fenced(&[ONE, OTHER, ONE]) };
    assert_holds("three holders", &engine);
}

#[test]
fn each_removed_part_violates_an_invariant() {
    let same = || Engine::fenced(&[ONE, ONE]);
    let different = || Engine::fenced(&[ONE, OTHER]);
    let late_lookup = Engine { unique: false, reads_keys: false, faults: 0, ..same() };
    assert_breaks("no unique key", &late_lookup, "a key was executed twice");
    for resolution in [Resolution::LookUp, Resolution::LookUpFirst, Resolution::InOneStatement] {
        let engine = Engine { resolution, ..different() };
        assert_breaks(&format!("{resolution:?}"), &engine, "reported not done what is done");
    }
}

/// From every state, after the last fault, a retry of the key executes it exactly once.
#[test]
fn retry_of_a_key_finishes_it() {
    let engine = Engine::fenced(&[ONE, OTHER]);
    let explored = explore(&engine).unwrap();
    for state in &explored.states {
        let retried = engine.retried(state);
        assert!(!retried.processes[0].failed, "{state:?}");
        let written = retried.database.records.iter().filter(|(key, _)| *key == ONE);
        assert_eq!(written.count(), 1, "{state:?}");
    }
    println!("retried from {} states", explored.states.len());
}

#[test]
fn unraised_fences_reject_all_holders() {
    let engine = Engine { raises: false, faults: 0, ..Engine::fenced(&[ONE, OTHER]) };
    let explored = explore(&engine).unwrap();
    let shut_out = |engine: &Engine| {
        explored.states.iter().filter(|state| engine.retried(state).processes[0].failed).count()
    };
    assert!(shut_out(&engine) > 0);
    assert_eq!(shut_out(&Engine::fenced(&[ONE, OTHER])), 0);
    // With raised fences, a holder gets a larger one.
    let raising = explore(&Engine::fenced(&[ONE, OTHER])).unwrap();
    let raised = |at: Phase| at == Phase::Raised;
    assert!(raising.states.iter().any(|state| state.processes.iter().any(|p| raised(p.at))));
}
