//! A write whose outcome is unknown: the statement may reach the server after it was resolved.
//!
//! Looking the idempotency key up does not resolve it: a write that has not begun is invisible. The
//! shortest traces are asserted. Invalidating the guard first resolves it under all interleavings,
//! provided that the lookup is a statement of its own and comes after.

use crate::engine::Engine;
use crate::resolve::Resolution;
use crate::{assert_breaks, assert_holds};

const ONE: u8 = 0b01;
const OTHER: u8 = 0b10;

fn trace(engine: &Engine, invariant: &str) -> String {
    assert_breaks(&format!("{:?}", engine.resolution), engine, invariant).join(", ")
}

#[test]
fn lookup_misses_a_running_write() {
    let engine = Engine { faults: 1, ..Engine::by_version(&[ONE], Resolution::LookUp) };
    assert_eq!(
        trace(&engine, "1 reported not done what is done"),
        "read 1, send the write of 1, begin the write of 1, lose the connection of 1, look up 1, \
         report not done 1, commit the late write of 1"
    );
}

#[test]
fn invalidating_after_the_lookup_is_too_late() {
    let engine = Engine { faults: 1, ..Engine::by_version(&[ONE], Resolution::LookUpFirst) };
    assert_eq!(
        trace(&engine, "1 reported not done what is done"),
        "read 1, send the write of 1, begin the write of 1, lose the connection of 1, look up 1, \
         commit the late write of 1, invalidate 1, report not done 1"
    );
}

#[test]
fn lookup_in_invalidating_statement_misses_write() {
    let engine = Engine { faults: 1, ..Engine::by_version(&[ONE], Resolution::InOneStatement) };
    assert_eq!(
        trace(&engine, "1 reported not done what is done"),
        "read 1, send the write of 1, begin the write of 1, lose the connection of 1, begin to invalidate 1, \
         commit the late write of 1, invalidate 1, report not done 1"
    );
}

#[test]
fn invalidating_the_guard_resolves_an_unknown_outcome() {
    for keys in [&[ONE][..], &[ONE, ONE], &[ONE, OTHER], &[ONE | OTHER, ONE]] {
        let engine = Engine::by_version(keys, Resolution::Invalidate);
        assert_holds(&format!("invalidate, keys {keys:?}"), &engine);
    }
}
