//! Tests wait for conditions, and compare orders and counts: how long something takes says more
//! about the machine. Those that bound a time all the same are listed here.

use std::collections::BTreeMap;
use std::fs;

use regex::Regex;

use super::{relative, root, rust_files};

/// The files with such bounds, how many there are, and what the product would do without the
/// promise, which takes longer than the bound on any machine.
const BOUNDS: [(&str, usize, &str); 20] = [
    ("crates/holdfast-lock/tests/lock/acquire_release.rs", 1, "the lock expires after 30 s"),
    ("crates/holdfast-lock/tests/lock/idempotency_locks.rs", 2, "it expires, or waits for 2 s"),
    ("crates/holdfast-lock/tests/lock/known_issues.rs", 6, "the lock expires, or 30 s pass"),
    ("crates/holdfast-lock/tests/lock/topologies.rs", 2, "a wait for a silent node, or for 30 s"),
    ("tests/it/audit.rs", 1, "a join of all rows with all, for half a minute"),
    ("tests/it/batched_crashes.rs", 1, "a transaction of a paused process, for 10 s"),
    ("tests/it/fenced.rs", 1, "the lab's longest pause, 8 s"),
    ("tests/it/healthcheck.rs", 1, "a paused replica never responds"),
    ("tests/it/idempotency.rs", 1, "the key's lock is renewed for 15 s"),
    ("tests/it/lab_limits.rs", 3, "orders wait for a pause of 8 s"),
    ("tests/it/locks/cancelled.rs", 2, "the lock expires, after 60 s or 3 s"),
    ("tests/it/malformed_requests.rs", 2, "a second head has its own 5 s"),
    ("tests/it/outages.rs", 1, "a request takes 8 s"),
    ("tests/it/race.rs", 2, "an order waits for 50 races; a race for a stopped replica"),
    ("tests/it/scheduler_game.rs", 1, "each statement waits for a lock for its own timeout"),
    ("tests/it/silence.rs", 3, "a write waits for 4.8 s, a request for 8 s"),
    ("tests/it/strategies.rs", 1, "the lock of a dead holder is renewed"),
    ("tests/it/traces.rs", 1, "an export waits for 60 s"),
    ("tests/pages/rejections.rs", 2, "a request takes 8 s"),
    ("tests/pages/slow_motion.rs", 1, "a picture that follows the hand; the fastest of five"),
];

#[test]
fn no_other_test_bounds_a_time() {
    let bound = Regex::new(r#"assert!\([^"]*(elapsed|slowest|gap|took)[^"]* <=? "#).unwrap();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in ["tests", "crates"].iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        let bounds = text.split(';').filter(|statement| bound.is_match(statement)).count();
        if bounds > 0 {
            *found.entry(relative(&path)).or_default() += bounds;
        }
    }

    let listed = BOUNDS.iter().map(|(file, many, _)| ((*file).to_owned(), *many)).collect();
    assert_eq!(found, listed, "wait for a condition, compare an order or a count, or list it here");
}
