//! Runs of the lab on a whole `holdfast up`: start, progress, faults, and results after a restart.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_testkit::up::{Up, state_of};
use holdfast_testkit::{User, assert_has, id_of, until};
use reqwest::Client;
use reqwest::redirect::Policy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use crate::{SharedMachine, share_machine};

/// Upper bound of a run on a busy machine, with the runs before it.
const RUN_TIMEOUT: Duration = Duration::from_secs(90);

/// A shop with its lab on, in a folder that a later `up` can use.
pub struct Lab {
    pub up: Up,
    admin: User,
    _machine: SharedMachine,
}

impl Lab {
    async fn open() -> Self {
        Self::start_with(&["--lab", "on"]).await
    }

    pub async fn start_with(options: &[&str]) -> Self {
        let machine = share_machine();
        Self::of(Up::start(options), machine).await
    }

    async fn of(up: Up, _machine: SharedMachine) -> Self {
        // No connection pool: a killed replica closes the connections that a client keeps.
        let http = Client::builder().pool_max_idle_per_host(0).build().unwrap();
        let anonymous = User { http, ..User::anonymous_of(&up.running.replicas[0]) };
        let admin = anonymous.session_of("admin").await;
        Self { up, admin, _machine }
    }

    pub async fn start(&self, run: &Value) -> String {
        id_of(&self.admin.starts_run(run).ok().await)
    }

    async fn read(&self, id: &str) -> Value {
        self.admin.reads(&format!("/api/lab/runs/{id}")).await
    }

    /// Reads the run's events, which end when it is over.
    pub async fn wait_until_over(&self, id: &str) -> Value {
        let events = self.admin.get(&format!("/api/lab/runs/{id}/events"));
        let is_over = timeout(RUN_TIMEOUT, events).await.is_ok();
        let run = self.read(id).await;
        assert!(is_over && run["state"] != "running", "{run:#}");
        run
    }

    pub async fn assert_sound(&self) {
        let audit = self.admin.reads("/api/audit").await;
        assert_eq!(audit["ok"], true, "{audit:#}");
    }

    /// Returns the running processes of this shop, and whether each is paused.
    fn processes(&self) -> Vec<(i32, bool)> {
        let children = self.up.children().into_iter();
        children.filter_map(|(_, pid)| Some((pid, state_of(pid)? == 'T'))).collect()
    }
}

#[tokio::test]
async fn same_load_oversells_only_without_a_lock() {
    let lab = Lab::open().await;
    let request = json!({ "strategies": ["none", "owner", "batched"], "stock": 20, "orders": 120,
        "buyers": 12, "work_ms": 2, "seed": 7 });
    let run = lab.wait_until_over(&lab.start(&request).await).await;
    assert_eq!(run["state"], "done", "{run:#}");
    assert_eq!(run["claim_shown"], Value::Null, "a load has no claim");
    let verdict = run["verdict"].as_str().unwrap();
    assert!(verdict.contains("owner: sound this time"), "{verdict}");
    let [none, owner, batched] = &run["arms"].as_array().unwrap()[..] else { panic!("{run:#}") };
    assert!(none["oversold"].as_i64().unwrap() > 0 && none["ok"] == false, "{none:#}");
    let forks = none["forked"].as_array().unwrap();
    assert!(!forks.is_empty());
    let lanes = run["lanes"].as_array().unwrap();
    for entry in forks[0]["entries"].as_array().unwrap() {
        let lane = lanes.iter().find(|lane| lane["request_id"] == entry["request_id"]).unwrap();
        let read = |event: &&Value| event["event"] == "read";
        let read = lane["events"].as_array().unwrap().iter().find(read).unwrap();
        assert_eq!(read["value"], forks[0]["before"], "the lane shows what the ledger says");
    }
    for sound in [owner, batched] {
        assert_has(sound, json!({ "sold": 20, "oversold": 0, "undersold": 0, "ok": true }));
        assert_eq!(sound["statuses"]["409"], 100);
    }
    lab.assert_sound().await;
}

#[tokio::test]
async fn every_fault_is_undone_and_audit_sound() {
    let lab = Lab::start_with(&["--lab", "on", "--redlock", "3"]).await;
    for kind in [
        "pause-node",
        "pause-replica",
        "kill-replica",
        "pause-redis",
        "restart-redis",
        "flush-redis",
    ] {
        let strategy = if kind == "pause-node" { "redlock" } else { "batched" };
        let request = json!({ "strategies": [strategy], "stock": 60, "orders": 200, "buyers": 8,
            "work_ms": 5, "fault": { "kind": kind, "at_ms": 60, "for_ms": 300 } });
        let run = lab.wait_until_over(&lab.start(&request).await).await;
        assert_eq!(run["state"], "done", "{kind}: {run:#}");
        let arm = &run["arms"][0];
        assert_eq!((&arm["oversold"], &arm["ok"]), (&json!(0), &json!(true)), "{kind}: {arm:#}");
        assert!(arm["sold"].as_i64().unwrap() <= 60, "{kind}");
        assert!(lab.processes().iter().all(|(_, paused)| !paused), "{kind}: a process is paused");
        lab.assert_sound().await;
    }
}

#[tokio::test]
async fn run_stopped_during_fault_is_marked_failed() {
    let lab = Lab::open().await;
    let request = json!({ "strategies": ["none"], "orders": 50,
        "fault": { "kind": "pause-replica", "at_ms": 0, "for_ms": 10_000 } });
    let id = lab.start(&request).await;
    until("the replica is paused", async || lab.processes().iter().any(|(_, paused)| *paused))
        .await;
    let processes = lab.processes();
    assert!(processes.len() >= 4, "Postgres, Redis and two replicas: {processes:?}");
    let data = lab.up.stop();
    for (pid, _) in processes {
        assert_eq!(state_of(pid), None, "{pid} still runs");
    }
    let lab = Lab::of(Up::start_in(data, &["--lab", "on"]), share_machine()).await;
    let run = lab.wait_until_over(&id).await;
    assert_eq!(run["state"], "failed");
    assert!(run["verdict"].as_str().unwrap().contains("stopped before"), "{run:#}");
    let run = lab
        .wait_until_over(&lab.start(&json!({ "strategies": ["batched"], "orders": 20 })).await)
        .await;
    assert_eq!(run["state"], "done");
    lab.assert_sound().await;
}

#[tokio::test]
async fn runs_wait_while_a_replica_is_paused() {
    let lab = Lab::open().await;
    let paused = json!({ "strategies": ["none"], "orders": 20,
        "fault": { "kind": "pause-replica", "at_ms": 0, "for_ms": 1_500 } });
    let load = json!({ "strategies": ["batched"], "orders": 20 });
    let first = lab.start(&paused).await;
    until("the replica is paused", async || lab.processes().iter().any(|(_, paused)| *paused))
        .await;
    let (second, third) = (lab.start(&load).await, lab.start(&load).await);
    assert_eq!(lab.read(&second).await["position"], 1);
    assert_eq!(lab.read(&third).await["position"], 2);
    for id in [&first, &second, &third] {
        assert_eq!(lab.wait_until_over(id).await["state"], "done");
    }
    lab.assert_sound().await;
}

/// A class answers and watches while its lesson kills a replica.
#[tokio::test]
async fn class_votes_while_a_replica_is_killed() {
    let lab = Lab::open().await;
    let lesson = format!("{}/lab/lessons/double-submit", lab.up.running.replicas[0]);
    let student = || Client::builder().cookie_store(true).redirect(Policy::none()).build().unwrap();
    let students: Vec<Client> = (0..30).map(|_| student()).collect();
    let post = async |student: &Client, action: &str| {
        let form = student.post(format!("{lesson}/{action}")).body("guess=1");
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        let response = form.send().await.unwrap();
        assert_eq!(response.status(), 303);
        response.headers()["location"].to_str().unwrap().to_owned()
    };

    let started = join_all(students[..15].iter().map(|student| post(student, "runs"))).await;
    assert!(started.iter().all(|run| *run == started[0]), "{started:?}");
    let id = started[0].rsplit('/').next().unwrap();
    until("the run goes on", async || lab.read(id).await["state"] == "running").await;
    join_all(students[15..].iter().map(|student| post(student, "answers"))).await;
    let run = lab.wait_until_over(id).await;
    assert_eq!(run["claim_shown"], true, "{run:#}");

    let page = students[29].get(&lesson).header("Accept", "text/html").send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("30 answers so far") && page.contains(&started[0]), "{page}");
    lab.assert_sound().await;
}

#[tokio::test]
async fn api_starts_valid_runs_of_admins_and_streams_them() {
    let lab = Lab::open().await;
    check_rights(&lab).await;
    check_parameters(&lab).await;
    check_event_stream(&lab).await;
}

async fn check_rights(lab: &Lab) {
    let load = json!({ "strategies": ["owner"], "orders": 20 });
    let id = lab.start(&load).await;
    let alice = lab.admin.session_of("alice").await;

    alice.starts_run(&load).fails(403, "forbidden").await;
    for path in ["/api/lab/paused", "/api/lab/queues"] {
        alice.get(path).fails(403, "forbidden").await;
    }
    alice.get(&format!("/api/lab/runs/{id}")).ok().await;
    assert_eq!(lab.wait_until_over(&id).await["state"], "done");
}

/// The problem names the field.
async fn check_parameters(lab: &Lab) {
    for (request, field) in [
        (json!({}), "strategies"),
        (json!({ "strategies": ["unknown"] }), "strategies"),
        (json!({ "strategies": ["none"], "orders": 0 }), "orders"),
        (json!({ "strategies": ["none"], "orders": 5_001 }), "orders"),
        (json!({ "strategies": ["none"], "buyers": 65 }), "buyers"),
        (json!({ "strategies": ["none"], "stock": -1 }), "stock"),
        (json!({ "strategies": ["none"], "work_ms": 1_001 }), "work_ms"),
        (json!({ "strategies": ["owner"], "ttl_ms": 9 }), "ttl_ms"),
        (json!({ "strategies": ["owner"], "wait": "notify" }), "wait"),
        (json!({ "lesson": "nothing" }), "lesson"),
        (
            json!({ "strategies": ["none"], "fault": { "kind": "kill-replica", "at_ms": 99_999 } }),
            "fault",
        ),
        // Without a quorum.
        (json!({ "strategies": ["redlock"] }), "strategies"),
        (json!({ "strategies": ["none"], "fault": { "kind": "pause-node" } }), "fault"),
    ] {
        let problem = lab.admin.starts_run(&request).fails(422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["field"], field, "{request}: {problem}");
        assert!(!problem["errors"][0]["detail"].as_str().unwrap().is_empty());
    }
    let unknown = json!({ "strategies": ["none"], "speed": 9 });
    let rejected = lab.admin.starts_run(&unknown).await;
    assert!((400..500).contains(&rejected.status), "{rejected}");
    lab.admin.get("/api/lab/runs/nothing").fails(404, "not-found").await;
}

/// The stream is throttled and complete.
async fn check_event_stream(lab: &Lab) {
    let request = json!({ "strategies": ["none", "batched"], "orders": 400, "work_ms": 2 });
    let id = lab.start(&request).await;
    let began = Instant::now();
    // The stream ends when the run is over.
    let events = lab.admin.get(&format!("/api/lab/runs/{id}/events")).await;
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(events.header("content-type"), "text/event-stream");

    let text = events.text();
    let frames: Vec<&str> = text.split("\n\n").filter(|frame| frame.contains("data: ")).collect();
    assert!(frames.len() >= 3, "{} frames", frames.len());
    assert!(frames.len() as f64 <= 10.0 * seconds + 2.0, "{} in {seconds} s", frames.len());
    let last = frames.last().unwrap().split_once("data: ").unwrap().1;
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["state"], "done");
    assert_eq!(last["arms"].as_array().unwrap().len(), 2);
}

/// Its API is closed, and a lesson starts a shop of its own.
#[tokio::test]
async fn shop_without_lab_mode_runs_nothing() {
    let lab = Lab::start_with(&["--lab", "off"]).await;
    let run = json!({ "strategies": ["none"] });
    lab.admin.starts_run(&run).fails(403, "forbidden").await;
    for path in
        ["/api/lab/runs", "/api/lab/runs/01a20077-9ddd-7430-b3da-d6208737c8e8", "/api/lab/paused"]
    {
        lab.admin.get(path).fails(403, "forbidden").await;
    }

    let output = command("dead-holder", &lab.up).output().await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("SHOWN:"), "{stdout}{stderr}");
    let parts = ["lab of the shop on", "starting a temporary shop"];
    assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    let unknown = command("nothing", &lab.up).output().await.unwrap();
    assert_eq!(unknown.status.code(), Some(2));

    // With a closed stdout, the lesson still runs to its end and removes its shop.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = command("dead-holder", &lab.up).stdout(writer).spawn().unwrap();
    let prefix = format!("holdfast-lesson-{}-", unread.id().unwrap());
    assert_eq!(unread.wait().await.unwrap().code(), Some(0));
    let folders = std::fs::read_dir("/var/tmp").unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!folders.into_iter().any(|name| name.to_string_lossy().starts_with(&prefix)));
}

#[tokio::test]
async fn lesson_without_contention_says_why() {
    let lab = Lab::open().await;
    for (name, stock, buyers, orders, why) in [
        ("lost-update", 0, 1, 1, "stock 0"),
        ("lost-update", 50, 8, 50, "stock 50"),
        ("one-replica", 5, 1, 10, "buyers 1"),
        ("waiting", 3, 4, 12, "orders 12"),
        ("wrong-key", 4, 4, 1, "orders 1"),
    ] {
        let request = json!({ "lesson": name, "stock": stock, "buyers": buyers, "orders": orders });
        let run = lab.wait_until_over(&lab.start(&request).await).await;
        let verdict = run["verdict"].as_str().unwrap();
        assert_eq!(run["claim_shown"], false, "{name}: {verdict}");
        assert!(verdict.starts_with("not shown: ") && verdict.contains(why), "{verdict}");
    }
}

#[tokio::test]
async fn run_outlives_its_command_but_not_its_shop() {
    let lab = Lab::open().await;
    let mut lesson = command("unpaid", &lab.up).spawn().unwrap();
    let mut stdout = BufReader::new(lesson.stdout.take().unwrap()).lines();
    let page = loop {
        let line = stdout.next_line().await.unwrap().unwrap();
        if line.contains("/lab/runs/") {
            break line;
        }
    };
    let pid = Pid::from_raw(lesson.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(lesson.wait().await.unwrap().code(), Some(2));
    let run = page.rsplit('/').next().unwrap();
    assert_eq!(lab.wait_until_over(run).await["state"], "done");

    // A shop that stops is reported.
    let mut lesson = command("unpaid", &lab.up).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(lesson.stdout.take().unwrap()).lines();
    stdout.next_line().await.unwrap().unwrap();
    let _data = lab.up.stop();
    let ended = lesson.wait_with_output().await.unwrap();
    assert!(!ended.stderr.is_empty(), "it says why");
    assert_eq!(ended.status.code(), Some(2));
}

fn command(name: &str, up: &Up) -> tokio::process::Command {
    let mut lesson = tokio::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    lesson.args(["lesson", name, "--data"]).arg(up.data());
    lesson.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    lesson
}

#[tokio::test]
async fn lesson_command_prints_verdict_and_evidence() {
    let lab = Lab::open().await;
    let output = command("lost-update", &lab.up).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in
        ["1. The lost update (lost-update)", "SHOWN:", "read 10", "NOT SOUND", "all details: http"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }

    let output =
        command("lost-update", &lab.up).env("LC_ALL", "zh_CN.UTF-8").output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["已证实：", "账目不符", "全部细节：http", "读到 10", "下一课：holdfast"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    for part in ["SHOWN", "SOUND", "oversold", "reads", "requests the lock", "Next:"] {
        assert!(!text.contains(part), "{part} is English:\n{text}");
    }

    let output = command("no-rollback", &lab.up).arg("--json").output().await.unwrap();
    assert!(output.status.success());
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["claim_shown"], true, "{run:#}");
    let evidence = run["evidence"].as_array().unwrap();
    let is_text = |entry: &Value| entry["name"].is_string() && entry["value"].is_string();
    assert!(!evidence.is_empty() && evidence.iter().all(is_text), "{run:#}");
}
