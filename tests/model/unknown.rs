//! A write whose outcome is unknown: the statement may reach the server after it was resolved.
//!
//! Looking the idempotency key up does not resolve it. A second insert of the key that is rolled
//! back sees no more than a lookup, and a write that has not begun is invisible to both. The
//! shortest traces are asserted. Invalidating the guard first resolves it under all interleavings,
//! provided that the lookup is a statement of its own and comes after.

use crate::engine::Engine;
use crate::resolve::Resolution;
use crate::{breaks, holds};

const ONE: u8 = 0b01;
const OTHER: u8 = 0b10;

fn trace(engine: &Engine, promise: &str) -> String {
    breaks(&format!("{:?}", engine.resolution), engine, promise).join(", ")
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
fn second_insert_misses_a_late_write() {
    let engine = Engine { faults: 1, ..Engine::by_version(&[ONE], Resolution::SecondInsert) };
    assert_eq!(
        trace(&engine, "1 reported not done what is done"),
        "read 1, send the write of 1, lose the connection of 1, insert again 1, report not done 1, \
         begin the late write of 1, commit the late write of 1"
    );
}

#[test]
fn second_insert_lets_a_client_order_twice() {
    let by_version = Engine::by_version(&[ONE], Resolution::SecondInsert);
    let engine = Engine { faults: 1, reorders: true, ..by_version };
    assert_eq!(
        trace(&engine, "a client has its order twice"),
        "read 1, send the write of 1, lose the connection of 1, insert again 1, report not done 1, \
         order again 1, begin the late write of 1, commit the late write of 1, read 1, \
         send the write of 1, begin the write of 1, commit the write of 1"
    );
}

/// The server has locked the row and the keys before the commit is sent: the insert waits.
#[test]
fn second_insert_resolves_an_explicit_commit() {
    for keys in [[ONE, ONE], [ONE, OTHER]] {
        let by_version = Engine::by_version(&keys, Resolution::SecondInsert);
        holds("second insert", &Engine { explicit: true, ..by_version });
    }
    let by_version = Engine::by_version(&[ONE, OTHER], Resolution::LookUp);
    trace(&Engine { explicit: true, ..by_version }, "reported not done what is done");
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
        for reorders in [false, true] {
            // Entries of one batch have several clients; counting orders is for single ones.
            if reorders && keys.contains(&(ONE | OTHER)) {
                continue;
            }
            let engine = Engine { reorders, ..Engine::by_version(keys, Resolution::Invalidate) };
            holds(&format!("invalidate, keys {keys:?}, reorders: {reorders}"), &engine);
        }
    }
}
