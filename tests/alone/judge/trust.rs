//! Locks that were called safe, and are not: each was found by a rule of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::command::{ADAPTER, JudgeRun};
use super::{SHORT, fault, number, sentences};

/// Long before the minute in which there could be enough turns.
#[test]
fn lock_that_nobody_gets_is_given_up() {
    let run = JudgeRun::start("only-busy", &SHORT).finish_within(Duration::from_secs(55));
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("answered busy or timeout to each request"), "{}", run.stderr);
}

/// It would have been called safe: under the faults that it kept from running it lost nothing.
#[test]
fn lock_that_stops_is_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judgement.json");
    let options = ["--faults", "pause", "--seconds", "1", "--wait-ms", "300", "--turns", "0"];
    let json = ["--json", file.to_str().unwrap()];
    let run = JudgeRun::start_with("renews-blindly", &options, &json).finish();
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("it can't be judged: no client"), "{}", run.stderr);
    let judgement: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(fault(&judgement, "pause")["prevented"], true, "{judgement:#}");
    assert_eq!(judgement["safe"], false, "{judgement:#}");
    let verdict = run.stdout.lines().find(|line| line.starts_with("NOT judged: "));
    assert!(
        verdict.unwrap().contains("no client of the process to be struck got the lock, so "),
        "{}",
        run.stdout
    );
}

#[test]
fn rare_second_grant_is_found_in_many_turns() {
    let options = ["--faults", "none", "--seconds", "1", "--turns", "1500", "--think-ms", "1"];
    let run = JudgeRun::start("often-right", &options).finish();
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    let none = fault(&judgement, "none");
    assert!(number(none, "lost_updates") > 0.0 && number(none, "turns") > 600.0, "{none:#}");

    // What was not lost was not lost in so many turns.
    let options = ["--faults", "none", "--turns", "300", "--think-ms", "1"];
    let run = JudgeRun::start_with("owner", &options, &[]).finish();
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("with 95 % confidence"), "{}", run.stdout);
}

#[test]
fn fence_of_a_clients_clock_goes_back() {
    let options = ["--faults", "clock-jump", "--seconds", "1", "--fail-on", "fences-back"];
    let run = JudgeRun::start("wall-fence", &options).finish();
    if !cfg!(target_os = "linux") {
        return;
    }
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("fence-regression under clock-jump"), "{}", run.stderr);
    let judgement = run.judgement();
    let jump = fault(&judgement, "clock-jump");
    assert!(number(jump, "fence_regressions") > 0.0, "{jump:#}");
    assert!(number(&jump["with_fence"], "refused") > 0.0, "{jump:#}");
    assert_eq!(fault(&judgement, "none")["fence_regressions"], 0, "{judgement:#}");
}

/// The grant of a lease that has ended by the time of its answer.
#[test]
fn late_grant_is_found() {
    // The more wait, the surer is it that one of them is granted it.
    let waiting = ["--clients", "8", "--think-ms", "1"];
    let options = [&["--faults", "late-grant", "--ttl-ms", "500"], &waiting[..]].concat();
    let run = JudgeRun::start("pooled", &options).finish();
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert!(number(fault(&judgement, "late-grant"), "lost_updates") > 0.0, "{judgement:#}");
    // Its fence is below that of the client that has the lock by then.
    let run = JudgeRun::start("pooled-fences", &options).finish();
    let judgement = run.judgement();
    let late = &fault(&judgement, "late-grant")["with_fence"];
    assert_eq!((&late["lost_updates"], number(late, "refused") > 0.0), (&0.into(), true), "{late}");
}

#[test]
fn client_that_is_told_of_its_loss_does_not_write() {
    let run = JudgeRun::start("tells-loss", &["--faults", "long-work", "--seconds", "1"]).finish();
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    let long_work = fault(&judgement, "long-work");
    assert!(number(long_work, "saved_updates") > 0.0, "{long_work:#}");
}

/// An adapter whose fences are the threads that acquire.
const THREADS: &str = "
import threading
from adapter import serve

class Locks:
    name, fencing, renews = 'threads', True, False
    def __init__(self, init): pass
    def acquire(self, key, wait): return object()
    def release(self, key, lease): return True
    def fence(self, lease): return threading.get_ident()

serve(Locks)
";

/// A library whose client belongs to a thread connects once per client, not per turn.
#[test]
fn python_adapter_uses_its_threads_again() {
    let common = concat!(env!("CARGO_MANIFEST_DIR"), "/judge/common");
    let mut python = Command::new("python3");
    python.args(["-c", THREADS]).env("PYTHONPATH", common).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut requests = python.stdin.take().unwrap();
    let mut answers = BufReader::new(python.stdout.take().unwrap()).lines();
    let mut ask = |request: Json| -> Json {
        writeln!(requests, "{request}").unwrap();
        serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap()
    };

    ask(json!({ "id": 0, "op": "init" }));
    let mut threads = BTreeSet::new();
    for turn in 0..50 {
        let granted = ask(json!({ "id": 2 * turn + 1, "op": "acquire", "key": "k", "wait_ms": 0 }));
        threads.insert(granted["fence"].as_u64().unwrap());
        let lease = &granted["lease"];
        ask(json!({ "id": 2 * turn + 2, "op": "release", "key": "k", "lease": lease }));
    }
    // More than one: a thread that has just answered may not be idle yet.
    assert!(threads.len() <= 5, "{threads:?}");
    drop(requests);
    python.wait().unwrap();
}

/// Ends with the test.
struct LockServer(Child);

impl Drop for LockServer {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A lock of a server of one's own, which ends with its connection.
#[test]
fn lock_of_a_session_is_lost_with_it() {
    let mut server = Command::new("python3");
    server.args([ADAPTER, "session-server"]).stdout(Stdio::piped());
    let mut server = LockServer(server.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let url = format!("LOCK_URL=lock://127.0.0.1:{}", port.trim());

    let faults = ["--faults", "session-cut,redis-flush", "--seconds", "1"];
    let options = [&faults[..], &["--backend-proxy", &url]].concat();
    let run = JudgeRun::start("session", &options).finish();
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert!(number(fault(&judgement, "session-cut"), "lost_updates") > 0.0, "{judgement:#}");
    assert_eq!(fault(&judgement, "none")["lost_updates"], 0, "{judgement:#}");
    assert_eq!(fault(&judgement, "redis-flush")["lost_updates"], 0, "{judgement:#}");
}

#[test]
fn starved_worker_is_counted() {
    let options = ["--faults", "none", "--seconds", "2", "--wait-ms", "500"];
    let options = [&options[..], &["--fail-on", "starved,blocked"]].concat();
    let run = JudgeRun::start("starving", &options).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("Not as demanded: starved under none"), "{}", run.stderr);
    let judgement = run.judgement();
    let none = fault(&judgement, "none");
    assert_eq!(none["waiters_starved"], 3, "{none:#}");
    assert!((0.35..=0.5).contains(&number(none, "jain")), "{none:#}");
    assert!(sentences(none, "starved")[0].contains("w1 c0"), "{none:#}");
}
