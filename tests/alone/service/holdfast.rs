//! Holdfast's own orders as a service like any other: the judge finds the strategies that break,
//! and clears those that do not.

use std::fs;

use serde_json::Value;

use super::{assert_found_nothing, assert_shown, assert_sold_once, found, pass, start};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/judge/services/holdfast/service.toml");

/// Judges the shop with a strategy.
fn judge(strategy: &str, faults: &str) -> Value {
    let text = fs::read_to_string(FILE).unwrap();
    let header = "Holdfast-Lock = \"fenced\"";
    assert!(text.contains(header), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("service.toml");
    fs::write(&file, text.replace("fenced", strategy)).unwrap();

    let run = start(&file, "", &["--faults", faults, "--json", "-"]).finish();
    assert!(run.code < Some(2), "{strategy}: {}", run.stderr);
    run.judgement()
}

#[test]
fn orders_without_a_lock_are_found() {
    let judgement = judge("none", "none,gate");
    for name in ["none", "gate"] {
        assert!(found(pass(&judgement, name)).contains(&"oversold"), "{judgement:#}");
    }
    assert_shown(&judgement, "read-then-write");
}

#[test]
fn lock_of_one_replica_is_found() {
    let judgement = judge("local", "none");
    assert!(found(pass(&judgement, "none")).contains(&"oversold"), "{judgement:#}");
}

/// The lease is over before the pause is, and before the gate opens.
#[test]
fn lease_that_is_outlived_is_found_and_its_fence_is_sound() {
    for (strategy, is_sound) in [("owner", false), ("fenced", true)] {
        let judgement = judge(strategy, "gate,retry,pause");
        for pass in judgement["passes"].as_array().unwrap() {
            let outlasts_lease = ["gate", "pause"].iter().any(|name| pass["name"] == *name);
            if outlasts_lease && !is_sound {
                assert!(found(pass).contains(&"oversold"), "{pass:#}");
            } else {
                assert_sold_once(pass);
            }
        }
        if !is_sound {
            assert_shown(&judgement, "lease-outlived");
        }
    }
}

/// Postgres knows the last fence, whatever Redis has forgotten.
#[test]
fn fence_is_sound_when_redis_forgets() {
    let judgement = judge("fenced", "redis-flush,redis-restart,redis-away");
    for pass in judgement["passes"].as_array().unwrap() {
        assert_found_nothing(pass);
    }
}
