//! Tests that must not share the machine with other test binaries: whole shops, load and judges, as
//! processes with all their services. Tests that measure also exclude the others of this binary.
//! Those of the site, which `script/test-site` runs, may share it.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

#[path = "../pages/axe_core.rs"]
mod axe_core;
mod bench;
mod bench_servers;
#[path = "../pages/browser.rs"]
#[expect(dead_code, reason = "the tests of the pages use all of it")]
mod browser;
mod course;
mod drawings;
mod judge;
mod lessons;
mod load;
mod price;
mod runs;
mod service;
mod site;
mod up;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by a test that others may run beside.
struct SharedMachine(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// Held by a test that measures, which other load would change.
struct WholeMachine(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>);

/// Waits for the tests that measure.
fn share_machine() -> SharedMachine {
    // Recursive, as one test may share it several times.
    SharedMachine(MACHINE.read_recursive())
}

/// Waits for all other tests.
fn whole_machine() -> WholeMachine {
    WholeMachine(MACHINE.write())
}
