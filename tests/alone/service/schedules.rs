//! The pass `interleavings`: the bad schedule is found, made short, and runs again as a test.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::{SHOP, assert_shown, assert_sold_once, evidence, found, pass, start_in};
use crate::judge::command::JudgeEnd;

/// Judges the shop from a folder, in which the schedule is written that finds something.
fn judge_in(folder: &TempDir, mode: &str, options: &[&str]) -> JudgeEnd {
    let options = [&["--json", "-"], options].concat();
    start_in(Some(folder.path()), Path::new(SHOP), mode, &options).finish()
}

/// Tries schedules for so many seconds: all of them, unless one finds something.
fn search(mode: &str, budget: &str) -> (TempDir, JudgeEnd) {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--faults", "interleavings", "--budget", budget];
    let run = judge_in(&folder, mode, &options);
    (folder, run)
}

/// A switch after the read is enough, whatever came before; two are between commands to Redis. They
/// are found among the first schedules.
#[test]
fn bad_schedule_is_found_and_runs_again() {
    for (mode, pattern, most_switches) in [
        ("read-then-write", "read-then-write", 1),
        ("check-then-decrement", "check-then-decrement", 1),
        ("polled", "read-then-write", 1),
        // Two would do, but no schedule with fewer switches is next to it.
        ("redis-look-then-set", "read-then-write", 5),
    ] {
        let (folder, run) = search(mode, "12");
        assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
        let judgement = run.judgement();
        let pass = pass(&judgement, "interleavings");
        assert!(found(pass).contains(&"oversold"), "{pass:#}");
        assert!(pass["runs"].as_u64() < Some(100), "{pass:#}");
        assert_eq!(pass["hits"], pass["runs"], "{pass:#}");
        assert_shown(&judgement, pattern);
        assert!(!run.stderr.contains("polling jobs") || mode == "polled", "{}", run.stderr);
        // Both have read the stock and written it; what begins their transactions is shown, too,
        // unless there is a lock to be shown.
        let statements = evidence(&judgement)[0]["statements"].as_array().unwrap();
        let count =
            |key: &str, value: Value| statements.iter().filter(|it| it[key] == value).count();
        let begins = if mode.starts_with("redis") { 0 } else { 2 };
        assert_eq!((count("decisive", true.into()), count("sql", "BEGIN".into())), (4, begins));
        let count = |text: &str| {
            let texts = statements.iter().map(|it| it["sql"].as_str().unwrap());
            texts.filter(|sql| sql.starts_with(text)).count()
        };
        let locks = ["redis EXISTS lock:item-", "redis SET lock:item-"].map(count);
        assert_eq!(
            locks,
            if mode.starts_with("redis") { [2, 2] } else { [0, 0] },
            "{statements:#?}"
        );

        let file = folder.path().join("service.schedule.json");
        let recorded: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let switches = recorded["schedule"]["switches"].as_array().unwrap();
        assert!((1..=most_switches).contains(&switches.len()), "{recorded:#}");
        let is_redis = |it: &Value| it["statement"].as_str().unwrap().starts_with("redis ");
        let has_redis = recorded["statements"].as_array().unwrap().iter().any(is_redis);
        assert_eq!(has_redis, mode.starts_with("redis"), "{recorded:#}");
        let replay = ["--replay", "service.schedule.json", "--repeat", "10"];
        // Its table is printed, too.
        let json = folder.path().join("judgement.json");
        let options = [&replay[..], &["--json", json.to_str().unwrap()]].concat();
        let run = start_in(Some(folder.path()), Path::new(SHOP), mode, &options).finish();
        assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
        let judgement: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let replayed = &judgement["passes"][0];
        assert_eq!((&replayed["runs"], &replayed["lost_in"]), (&10.into(), &10.into()));
        assert_eq!((&pass["replay"], &replayed["replay"]), (&Value::Null, &true.into()));
        assert_shown(&judgement, pattern);
        let has_lock = run.stdout.contains(" The two held a lock in Redis, or looked for one: ");
        assert_eq!(has_lock, mode.starts_with("redis"), "{}{}", run.stdout, run.stderr);

        // The cure sends other statements, whichever the mistake was.
        if mode != "read-then-write" {
            continue;
        }
        let run = judge_in(&folder, "conditional", &replay);
        assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
        let said = "so it says nothing of them. In the schedule\n  buyer 1: ";
        assert!(run.stderr.contains(said), "{}", run.stderr);
        assert!(run.stderr.contains("--json and --html write nothing"), "{}", run.stderr);
    }
}

/// Of five statements. A busy machine may leave some of more statements.
const ALL_OF_TWO_SWITCHES: u64 = 42;

/// Returns how many schedules were tried.
fn tried(run: &JudgeEnd) -> u64 {
    pass(&run.judgement(), "interleavings")["runs"].as_u64().unwrap()
}

/// A request that waits for the other, in Postgres, in a loop or for what is not seen, does not
/// hold up the schedule.
#[test]
fn sound_orders_pass_all_schedules_of_two_switches() {
    let modes = ["row-lock", "conditional", "advisory", "no-wait", "serializable", "redis-lock"];
    for mode in modes {
        let (mut folder, mut run) = search(mode, "12");
        // A busy machine gets more time.
        if run.code == Some(0) && tried(&run) < ALL_OF_TWO_SWITCHES {
            (folder, run) = search(mode, "40");
        }
        assert_eq!(run.code, Some(0), "{mode}: {}{}", run.stdout, run.stderr);
        let judgement = run.judgement();
        let pass = pass(&judgement, "interleavings");
        assert_sold_once(pass);
        assert_eq!(pass["hits"], pass["runs"], "{mode}: {pass:#}");
        assert!(tried(&run) >= ALL_OF_TWO_SWITCHES, "{mode}: {pass:#}");
        assert!(!folder.path().join("service.schedule.json").exists());
    }
}

/// It gives up statements that are held, with their connections.
#[test]
fn orders_that_are_given_up_do_not_hold_up_the_schedules() {
    let (_folder, run) = search("impatient", "6");
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    let pass = pass(&judgement, "interleavings");
    // Within six seconds; one that is held up takes three.
    assert!(pass["runs"].as_u64() > Some(10), "{pass:#}");
}

/// The gate, and an order that has the row, outlast the `lock_timeout` of another, which rolls back
/// and begins anew.
#[test]
fn orders_that_wait_anew_after_a_lock_timeout_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--faults", "gate,interleavings", "--budget", "6"];
    let run = judge_in(&folder, "lock-timeout", &options);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    let [gate, schedules] = ["gate", "interleavings"].map(|name| pass(&judgement, name));
    for pass in [gate, schedules] {
        assert_sold_once(pass);
        assert_eq!(pass["errors"], 0, "{pass:#}");
    }
    assert_eq!(schedules["hits"], schedules["runs"], "{schedules:#}");
    // Of six statements: one order after the other, by turns, and all with one switch.
    assert!(schedules["runs"].as_u64() >= Some(14), "{schedules:#}");
}

/// What comes after the last try has no lock. Only a patient schedule lets the tries end before the
/// other order goes on, and one with a switch after the read is among the first.
#[test]
fn orders_that_read_without_a_lock_after_a_lock_timeout_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let mode = "lock-timeout-then-read";
    let run = judge_in(&folder, mode, &["--faults", "gate,interleavings"]);
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    for name in ["gate", "interleavings"] {
        let pass = pass(&judgement, name);
        assert_eq!(found(pass), ["oversold", "drift"], "{pass:#}");
        assert_eq!(pass["ran"], true, "{pass:#}");
        assert!(pass["runs"].as_u64() < Some(20), "{pass:#}");
    }
    assert_shown(&judgement, "read-then-write");

    let file = folder.path().join("service.schedule.json");
    let recorded: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(recorded["schedule"]["patient"], true, "{recorded:#}");
    let run = judge_in(&folder, mode, &["--replay", "service.schedule.json", "--repeat", "3"]);
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert_eq!(run.judgement()["passes"][0]["lost_in"], 3, "{}", run.stdout);
}

#[test]
fn schedule_that_can_not_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("service.schedule.json")).unwrap();
    let run = judge_in(&folder, "read-then-write", &["--faults", "interleavings"]);
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("can't write service.schedule.json"), "{}", run.stderr);
}

#[test]
fn recordings_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cut.json"), "{\"service\": \"shop\",").unwrap();
    let other = |first: u8| {
        format!(
            r#"{{"service": "stall", "schedule": {{"first": {first}, "switches": [1]}},
                "statements": []}}"#
        )
    };
    std::fs::write(folder.path().join("other.json"), other(0)).unwrap();
    std::fs::write(folder.path().join("third.json"), other(2)).unwrap();
    for (name, expected) in [
        ("none.json", "--replay: can't read none.json"),
        ("cut.json", "--replay: cut.json is no schedule that the judge has written"),
        ("third.json", "--replay: third.json is no schedule that the judge has written"),
        ("other.json", "--replay: the schedule is of the service stall, not shop"),
    ] {
        let run = judge_in(&folder, "conditional", &["--replay", name]);
        assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
}
