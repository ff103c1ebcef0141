//! `holdfast judge` finds each lock that is wrong, clears the correct one, and ends with a
//! defined result and no process left, however its adapter fails.
//!
//! Needs Postgres, Redis, Python 3 and, on Linux, libfaketime (script/test installs them).

pub mod command;
mod history;
mod trust;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_judge::fault::Fault;
use rustix::process::Signal;
use serde_json::Value;

use command::{ADAPTER, JudgeRun, is_alive};

fn fault<'a>(judgement: &'a Value, name: &str) -> &'a Value {
    let faults = judgement["faults"].as_array().unwrap();
    let fault = faults.iter().find(|fault| fault["name"] == name);
    fault.unwrap_or_else(|| panic!("no report of {name}: {judgement:#}"))
}

fn sentences(fault: &Value, kind: &str) -> Vec<String> {
    let violations = fault["violations"].as_array().unwrap().iter();
    let of_kind = violations.filter(|violation| violation["kind"] == kind);
    of_kind.map(|violation| violation["text"].as_str().unwrap().to_owned()).collect()
}

fn number(fault: &Value, figure: &str) -> f64 {
    let value = fault[figure].as_f64();
    value.unwrap_or_else(|| panic!("{figure} is no number: {fault:#}"))
}

#[test]
fn missing_lock_is_found_without_a_fault() {
    // With pauses, so that calls to the slow Redis are more than one of a hundred.
    let options = ["--faults", "redis-slow", "--seconds", "1", "--ttl-ms", "300"];
    let load = ["--work-ms", "10", "--think-ms", "50"];
    let run = JudgeRun::start("constant-fence", &[&options[..], &load].concat()).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let judgement = run.judgement();
    assert_eq!(judgement["safe"], false);
    assert_eq!(judgement["adapter"]["name"], "test constant-fence");
    let none = fault(&judgement, "none");
    assert!(number(none, "lost_updates") > 0.0 && number(none, "overlaps") > 0.0, "{none:#}");
    assert!(number(none, "release_ok_when_lost") > 0.0, "{none:#}");
    let sentence = &sentences(none, "lost-update")[0];
    let lost = ["the stock shows one", "which undid "].iter().any(|it| sentence.contains(it));
    assert!(sentence.contains("both read") && lost, "{sentence}");
    // A fence that does not grow protects nothing.
    let fenced = &none["with_fence"];
    assert!(number(fenced, "lost_updates") > 0.0 && fenced["refused"] == 0, "{none:#}");
    assert!(number(none, "fence_regressions") > 0.0, "{none:#}");
    assert!(sentences(none, "lost-with-fence")[0].contains("with fence 1, "), "{none:#}");
    // Clients do not wait for each other, only for two round trips to Redis.
    assert!(number(none, "wait_p50_ms") < 400.0, "{none:#}");
    assert!(number(fault(&judgement, "redis-slow"), "wait_p99_ms") >= 800.0, "{judgement:#}");
    // Its events show both reads of the value and both writes.
    let violations = none["violations"].as_array().unwrap();
    let lost = violations.iter().find(|violation| violation["kind"] == "lost-update").unwrap();
    let writes =
        lost["events"].as_array().unwrap().iter().filter(|event| event["event"] == "write");
    assert!(writes.count() >= 2, "{lost:#}");
}

#[test]
fn ownerless_lease_fails_under_long_work() {
    let options = ["--faults", "long-work", "--seconds", "1"];
    let run = JudgeRun::start("no-owner", &options).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let judgement = run.judgement();
    let long_work = fault(&judgement, "long-work");
    assert!(number(long_work, "lost_updates") > 0.0, "{long_work:#}");
    assert!(number(long_work, "release_ok_when_lost") > 0.0, "{long_work:#}");
    assert_eq!(fault(&judgement, "none")["lost_updates"], 0, "{judgement:#}");
}

#[test]
fn plain_lease_loses_updates_under_faults() {
    let faults = [
        "pause",
        "long-work",
        "redis-flush",
        "redis-restart",
        "redis-failover",
        "evict",
        "partition",
        "slow-commit",
    ];
    let options = ["--faults", &faults.join(","), "--seconds", "1"];
    let run = JudgeRun::start("owner", &options).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let judgement = run.judgement();
    for name in faults {
        let fault = fault(&judgement, name);
        assert!(number(fault, "lost_updates") > 0.0, "{name}: {fault:#}");
        assert!(!sentences(fault, "lost-update").is_empty(), "{name}: {fault:#}");
        // It compares the owner when it releases.
        assert_eq!(fault["release_ok_when_lost"], 0, "{name}: {fault:#}");
    }
    let none = fault(&judgement, "none");
    assert_eq!((&none["lost_updates"], &none["overlaps"]), (&0.into(), &0.into()), "{none:#}");
    assert!(number(none, "redis_commands") >= 2.0, "{none:#}");
}

/// Its adapter is in a session of its own, and below another process group: faults must reach it.
#[test]
fn renewed_lease_outlasts_long_work_only() {
    let faults = "pause,long-work,kill-holder,partition,slow-commit,cancel";
    let options = ["--faults", faults, "--seconds", "1.5", "--env", "STAYS=1", "--json", "-"];
    let program: &[&str] =
        if cfg!(target_os = "linux") { &["timeout", "10m", "setsid"] } else { &[] };
    let run = JudgeRun::start_behind(program, "watchdog", &options).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let judgement = run.judgement();
    // A slow commit is not logged.
    assert!(!run.stderr.contains("slow statement"), "{}", run.stderr);
    for name in ["none", "long-work", "slow-commit"] {
        assert_eq!(fault(&judgement, name)["lost_updates"], 0, "{judgement:#}");
    }
    // The lease is not renewed while the adapter is paused or partitioned.
    for name in ["pause", "partition"] {
        assert!(number(fault(&judgement, name), "lost_updates") > 0.0, "{judgement:#}");
    }
    let cancel = fault(&judgement, "cancel");
    assert_eq!((&cancel["ran"], &cancel["why_not"]), (&false.into(), &NO_CANCEL.into()));
    // Nor after the process was killed.
    let kill = fault(&judgement, "kill-holder");
    assert!(number(kill, "blocked_ms_max") < 2_500.0, "{kill:#}");
}

const NO_CANCEL: &str = "the adapter has no `cancel`";

/// Faults that a lock survives if it looks at errors, and has no state that they strike.
#[test]
fn connections_scripts_and_requests_are_struck() {
    let cases = [
        ("owner", "client-kill,cancel", 0),
        ("script-once", "script-flush", 0),
        ("cancel-deletes", "cancel", 1),
    ];
    for (mode, faults, code) in cases {
        // Many commands: one has to be under way when it is struck.
        let options = ["--faults", faults, "--seconds", "1", "--think-ms", "1"];
        let run = JudgeRun::start(mode, &options).finish();
        assert_eq!(run.code, Some(code), "{mode}: {}{}", run.stdout, run.stderr);
        let judgement = run.judgement();
        for name in faults.split(',') {
            let fault = fault(&judgement, name);
            assert_eq!(fault["ran"], true, "{mode}: {fault:#}");
            match name {
                // Those whose connections were closed in a request.
                "client-kill" => assert!(number(fault, "errors") > 0.0, "{mode}: {fault:#}"),
                // It can't release what it holds, which expires.
                "script-flush" => assert!(number(fault, "blocked_ms_max") > 500.0, "{fault:#}"),
                _ => assert!(number(fault, "cancelled") > 0.0, "{mode}: {fault:#}"),
            }
        }
    }
}

#[test]
fn busy_while_redis_is_away_is_misreported() {
    let options = ["--faults", "redis-away", "--seconds", "1"];
    let run = JudgeRun::start("busy-when-away", &options).finish();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let judgement = run.judgement();
    assert!(number(fault(&judgement, "redis-away"), "misreported_busy") > 0.0, "{judgement:#}");
    assert_eq!(fault(&judgement, "redis-away")["errors"], 0, "{judgement:#}");
    let run = JudgeRun::start("owner", &options).finish();
    let judgement = run.judgement();
    assert_eq!(fault(&judgement, "redis-away")["misreported_busy"], 0, "{judgement:#}");
    assert!(number(fault(&judgement, "redis-away"), "errors") > 0.0, "{judgement:#}");
    // The outage of Redis itself does not count as blocked.
    assert!(number(fault(&judgement, "redis-away"), "blocked_ms_max") < 2_000.0, "{judgement:#}");
}

#[test]
fn fences_reject_a_paused_holder_and_must_grow() {
    let options = ["--faults", "pause,redis-flush", "--seconds", "1", "--repeat", "2"];
    let run = JudgeRun::start("fences-repeat", &options).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let judgement = run.judgement();
    let pause = fault(&judgement, "pause");
    assert!(number(pause, "lost_updates") > 0.0, "{pause:#}");
    assert_eq!(pause["with_fence"]["lost_updates"], 0, "{pause:#}");
    assert!(number(&pause["with_fence"], "refused") > 0.0, "{pause:#}");
    let repeats = [("runs", 2), ("lost_in", 2), ("lost_in_with_fence", 0), ("run_seed", 7)];
    for (name, expected) in repeats {
        assert_eq!(pause[name], expected, "{name}: {pause:#}");
    }
    assert_eq!(pause["fence_regressions"], 0, "{pause:#}");
    let flush = fault(&judgement, "redis-flush");
    assert_eq!(flush["runs"], Value::Null, "it is none of those that are repeated");
    assert!(number(flush, "fence_regressions") > 0.0, "{flush:#}");
    assert!(sentences(flush, "fence-regression")[0].contains("with fence"), "{flush:#}");
    // Its drawing says when Redis lost its keys.
    let events = flush["violations"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|it| it["events"].as_array().unwrap());
    let is_flush = |event: &&Value| event["event"] == "flushed" && event["server"] == "Redis";
    assert!(events.filter(is_flush).count() > 0, "{flush:#}");
    // A lower fence is rejected at the read already, also when no other client holds the lock.
    let rejected = number(&flush["with_fence"], "refused");
    assert!(rejected >= number(flush, "fence_regressions") / 2.0, "{flush:#}");
    let none = fault(&judgement, "none");
    assert_eq!(none["with_fence"]["refused"], 0, "{none:#}");
}

#[test]
fn lock_without_expiry_blocks_after_a_kill() {
    let options = ["--faults", "kill-holder", "--seconds", "3", "--ttl-ms", "300"];
    let run =
        JudgeRun::start("never-freed", &[&options[..], &["--wait-ms", "1000"]].concat()).finish();
    // A lock that stops loses nothing.
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(
        run.stderr.contains("nobody got the lock any more under kill-holder"),
        "{}",
        run.stderr
    );
    let judgement = run.judgement();
    assert_eq!(judgement["safe"], false, "{judgement:#}");
    let kill = fault(&judgement, "kill-holder");
    assert!(number(kill, "blocked_ms_max") > 900.0, "{kill:#}");
    assert_eq!(kill["leftover_keys"], 1, "{kill:#}");
    assert!(sentences(kill, "blocked")[0].contains("until the work ended"), "{kill:#}");
    assert!(sentences(kill, "leftover-key")[0].contains("item:"), "{kill:#}");
    // Its other key has expired.
    assert_eq!(fault(&judgement, "none")["leftover_keys"], 0, "{judgement:#}");
}

#[test]
fn wall_clock_expiry_fails_when_clock_jumps() {
    let options = ["--faults", "clock-jump", "--seconds", "1"];
    let run = JudgeRun::start("wall-clock", &options).finish();
    let judgement = run.judgement();
    let jump = fault(&judgement, "clock-jump");
    if !cfg!(target_os = "linux") {
        assert!(jump["why_not"].as_str().unwrap().contains("libfaketime"), "{jump:#}");
        assert_eq!(run.code, Some(0), "{judgement:#}");
        return;
    }
    assert_eq!(run.code, Some(1), "{judgement:#}");
    assert!(number(jump, "lost_updates") > 0.0, "{jump:#}");
    assert_eq!(fault(&judgement, "none")["lost_updates"], 0, "{judgement:#}");
}

#[test]
fn kernel_lock_is_safe_under_every_fault() {
    let options = ["--faults", "all", "--seconds", "1", "--ttl-ms", "400"];
    let run = JudgeRun::start("flock", &options).finish();
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert_eq!(judgement["safe"], true);
    let faults = judgement["faults"].as_array().unwrap();
    assert_eq!(faults.len(), Fault::ALL.len());
    for fault in faults {
        if fault["name"] == "clock-jump" && !cfg!(target_os = "linux") {
            continue;
        }
        assert_eq!(fault["ran"], true, "{fault:#}");
        for figure in ["lost_updates", "overlaps", "release_ok_when_lost", "misreported_busy"] {
            assert_eq!(fault[figure], 0, "{fault:#}");
        }
        assert!(number(fault, "turns") > 10.0, "{fault:#}");
        assert_eq!(fault["with_fence"], Value::Null, "{fault:#}");
    }
}

/// The lock of the kernel sends nothing for a grant: what its adapter begins to ask in the
/// background is no part of one.
#[test]
fn table_names_faults_and_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judgement.json");
    let json = ["--json", file.to_str().unwrap(), "--env", "ASKS=1"];
    let options = ["--faults", "clock-jump", "--seconds", "0.3", "--think-ms", "1"];
    let clean = ["env", "-u", "LD_PRELOAD"];
    let run = JudgeRun::start_behind(&clean, "flock", &[&options[..], &json].concat()).finish();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    if cfg!(target_os = "linux") {
        let why_not = "\nclock-jump  did not run: python3 does not load libfaketime\n";
        assert!(run.stdout.contains(why_not), "{}", run.stdout);
    }
    assert!(run.stdout.contains("test flock (no fences"), "{}", run.stdout);
    assert!(run.stdout.contains("\nSafe under none: no lost update"), "{}", run.stdout);
    let judgement = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let none = fault(&judgement, "none");
    let (idle, of_grants) = (number(none, "idle_commands"), number(none, "redis_commands"));
    // Half a second of work at least.
    let background = idle / 2.0 / number(none, "turns");
    assert!(idle > 0.0 && of_grants < background / 2.0, "{none:#}");
}

/// Options of a short judgement with an adapter that misbehaves.
const SHORT: [&str; 6] = ["--faults", "none", "--ttl-ms", "300", "--wait-ms", "500"];

#[test]
fn adapter_that_misbehaves_ends_the_judgement() {
    let modes = [
        ("exits", "the adapter exited (exit status: 3)", "out of paper"),
        ("garbage", "something that is not an answer", "ready to serve!"),
        ("unfinished", "a line without its newline", r#""ok": true}"#),
        ("twice", "which waits for no answer", "the adapter answered request"),
        ("floods", "a line of more than 65536 bytes", ""),
        ("odd-reason", "`busy`, `timeout` or `error`", "maybe"),
        ("no-fence", "granted a lock without a `fence`", ""),
        ("only-errors", "no client got the lock", "last error was: out of quorum"),
        ("hangs", "has not answered request", " s."),
    ];
    for (mode, expected, also) in modes {
        let mut options = SHORT.to_vec();
        match mode {
            "hangs" => options.extend(["--answer-timeout-s", "1"]),
            // It may start for longer than it may take for an answer: with the leases, 1.9 s.
            "only-errors" => options.extend(["--answer-timeout-s", "1", "--env", "START_S=2.2"]),
            _ => {}
        }
        let run = JudgeRun::start(mode, &options).finish();
        assert_eq!(run.code, Some(2), "{mode}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{mode}");
        assert!(run.stderr.contains(expected), "{mode}: {}", run.stderr);
        assert!(run.stderr.contains(also), "{mode}: {}", run.stderr);
    }
}

#[test]
fn adapter_that_does_not_start_is_named() {
    let run = JudgeRun::start_command(&SHORT, &["/nonexistent/adapter"]).finish();
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(
        run.stderr.contains("can't start the adapter `/nonexistent/adapter`"),
        "{}",
        run.stderr
    );
}

#[test]
fn detached_child_of_the_adapter_ends() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, code) in [("leaks", 2), ("flock", 0)] {
        let file = folder.path().join(mode);
        let leak_file = format!("LEAK_FILE={}", file.display());
        let options = [&SHORT[..], &["--seconds", "0.5", "--env", &leak_file]].concat();
        let run = JudgeRun::start(mode, &options).finish();
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert_leaks_ended(&file);
    }
}

/// Checks that processes were leaked, and that none of them runs.
pub fn assert_leaks_ended(file: &Path) {
    let leaked = std::fs::read_to_string(file).unwrap();
    assert!(!leaked.is_empty(), "no process was leaked");
    for pid in leaked.lines() {
        assert!(!is_alive(pid.parse().unwrap()), "{pid} runs");
    }
}

#[test]
fn unknown_fault_lists_the_faults() {
    let run = JudgeRun::start("flock", &["--faults", "paws"]).finish();
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("redis-failover"), "{}", run.stderr);
}

#[test]
fn invalid_options_are_reported_before_the_work() {
    let old = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(old.path(), r#"{"version": 1}"#).unwrap();
    let old = ["--baseline", old.path().to_str().unwrap()];
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/judged/flock.json");
    let cases: [(&[&str], &str); 9] = [
        (&["--may-lose", "paws"], "--may-lose paws: the faults are none, pause, "),
        (&["--baseline", "/nonexistent.json"], "can't read /nonexistent.json"),
        (&old, "is no judgement of this version of holdfast"),
        (&["--baseline", other], "the baseline is of something else: flock"),
        (&["--backend-proxy", "A=rediss://localhost:1"], "a server that needs TLS"),
        (&["--json", "/nonexistent/judgement.json"], "can't write /nonexistent/judgement.json"),
        (&["--html", "/nonexistent/judgement.html"], "can't write /nonexistent/judgement.html"),
        (&["--workers", "16", "--clients", "64"], "1024 clients: at most 200"),
        (&["--workers", "1"], "2 to 16"),
    ];
    for (options, expected) in cases {
        let run = JudgeRun::start_with("flock", &["--seconds", "600"], options).finish();
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
    }
}

#[test]
fn new_adapter_is_that_of_a_lock_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let make = |language: &str| {
        let mut judge = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        judge.args(["judge", "new", language]).arg(folder.path().join(language)).output().unwrap()
    };
    for language in ["python", "javascript", "rust", "php"] {
        let made = make(language);
        assert!(made.status.success(), "{made:?}");
        let refused = make(language);
        let why = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && why.contains("exists"), "{why}");
    }

    let python = folder.path().join("python");
    let mut compile = Command::new("python3");
    compile.args(["-m", "py_compile"]).args(["lock.py", "adapter.py"].map(|it| python.join(it)));
    assert!(compile.status().unwrap().success());
}

#[test]
fn interrupted_judge_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let file = folder.path().join(format!("{signal:?}"));
        let leak_file = format!("LEAK_FILE={}", file.display());
        let options = ["--faults", "none", "--seconds", "60", "--env", &leak_file];
        let run = JudgeRun::start("flock", &options);
        run.wait_for_adapters();
        run.wait_for("the adapter has written its ids", || {
            std::fs::read_to_string(&file).is_ok_and(|pids| pids.ends_with('\n'))
        });
        run.send(signal);
        let run = run.finish();
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert_eq!(run.stdout, "");
        assert_leaks_ended(&file);
    }
}

#[test]
fn judge_interrupted_at_its_start_leaves_no_folder() {
    let mut judge = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    judge.args(["judge", "--faults", "none", "--", "python3", ADAPTER, "flock"]);
    JudgeRun::interrupt_at_its_start(judge);
}

/// The judge is killed while a worker is stopped.
#[test]
fn killed_judge_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leaked");
    let leak_file = format!("LEAK_FILE={}", file.display());
    let options = ["--faults", "pause", "--seconds", "0.3", "--ttl-ms", "30000"];
    let run = JudgeRun::start("flock", &[&options[..], &["--env", &leak_file]].concat());
    run.wait_for_stopped_adapter();
    run.send(Signal::KILL);
    let run = run.finish_within(Duration::from_secs(20));
    assert_eq!(run.code, None);
    assert_leaks_ended(&file);
}
