//! Every lesson shows what it claims, on a real `holdfast up`, and leaves nothing behind.
//!
//! A lesson that shows a failure fails here when the failure stops showing. They are played in
//! order, by one test, through the API: as a visitor plays them.
//! Needs Postgres and Redis installed (script/test sees to it).

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod common;

use std::time::{Duration, Instant};

use holdfast::lab::lessons::LESSONS;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use common::up::{Up, state_of};

/// No lesson takes longer, on a busy machine.
const LESSON_TIMEOUT: Duration = Duration::from_secs(90);
/// The lab's API, for an admin.
struct Lab<'a> {
    http: Client,
    token: String,
    up: &'a Up,
}

impl<'a> Lab<'a> {
    async fn open(up: &'a Up) -> Self {
        // A replica that is killed takes its kept connections with it.
        let http =
            Client::builder().timeout(LESSON_TIMEOUT).pool_max_idle_per_host(0).build().unwrap();
        let mut lab = Self { http, token: String::new(), up };
        let credentials = json!({"user": "admin", "password": "admin"});
        let session = lab.ask(Method::POST, "/api/sessions", Some(credentials)).await.unwrap();
        lab.token = session["token"].as_str().unwrap().to_owned();
        lab
    }

    /// `None` without a successful response: a replica may be restarting.
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Option<Value> {
        let url = format!("{}{path}", self.up.running.replicas[0]);
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        request = request.header("Idempotency-Key", Uuid::new_v4().to_string());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.ok()?;
        if answer.status().is_success() { answer.json().await.ok() } else { None }
    }

    /// Plays a lesson to its end.
    async fn play(&self, name: &str) -> Value {
        let began = Instant::now();
        let wanted = json!({"lesson": name});
        let id = loop {
            let asked = self.ask(Method::POST, "/api/lab/runs", Some(wanted.clone())).await;
            if let Some(run) = asked {
                break run["id"].as_str().unwrap().to_owned();
            }
            assert!(began.elapsed() < LESSON_TIMEOUT, "{name} could not be asked for");
            sleep(Duration::from_millis(50)).await;
        };
        loop {
            let run = self.ask(Method::GET, &format!("/api/lab/runs/{id}"), None).await;
            match run {
                Some(run) if run["state"] == "done" || run["state"] == "failed" => return run,
                _ => assert!(began.elapsed() < LESSON_TIMEOUT, "{name} does not end"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lesson_shows_its_claim() {
    let up = Up::start(&["--lab", "on"]);
    let lab = Lab::open(&up).await;
    let before = count_children(&up);
    for lesson in LESSONS {
        let began = Instant::now();
        let run = lab.play(lesson.name).await;
        let (verdict, said) = (&run["verdict"], &run["said"]);
        println!("{:5.1} s  {:18} {verdict}", began.elapsed().as_secs_f64(), lesson.name);
        assert_eq!(run["state"], "done", "{}: {verdict}\n{said:#}", lesson.name);
        assert_eq!(run["claim_shown"], true, "{}: {verdict}\n{run:#}", lesson.name);
        assert!(!said.as_array().unwrap().is_empty(), "{} says what it does", lesson.name);
    }
    assert_eq!(count_children(&up), before, "every Redis of a lesson's own has ended");
    let audit = lab.ask(Method::GET, "/api/audit", None).await.expect("the audit");
    assert_eq!(audit["ok"], true, "{audit:#}");
    assert_no_locks(&up.running.redis_url).await;
    for (role, pid) in up.children() {
        assert_ne!(state_of(pid), Some('T'), "{role} is stopped");
    }
}

#[test]
fn lesson_definitions_are_valid() {
    for (at, lesson) in LESSONS.iter().enumerate() {
        assert_eq!(lesson.number(), at + 1, "{}", lesson.name);
        assert!(lesson.right < lesson.guesses.len(), "{}", lesson.name);
        assert!((2..=4).contains(&lesson.guesses.len()), "{}", lesson.name);
        assert!(lesson.question.ends_with('?'), "{}", lesson.name);
        assert!(lesson.takeaway.iter().all(|sentence| sentence.ends_with('.')), "{}", lesson.name);
        for name in lesson.shows {
            assert!(holdfast::lab::source::of(name).is_some(), "{}: {name}", lesson.name);
        }
    }
}

/// No key of the lab's without an expiry, and none of a lesson's own.
async fn assert_no_locks(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    for key in keys {
        assert!(!key.starts_with("holdfast-lab:"), "{key} is left");
        // The queue of unpaid orders knows when to end.
        if key.starts_with("holdfast:expiry:") {
            continue;
        }
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
        assert_ne!(ttl, -1, "{key} has no expiry");
    }
}

/// The number of child processes of `up` (Linux only).
fn count_children(up: &Up) -> usize {
    let path = format!("/proc/{0}/task/{0}/children", up.pid());
    std::fs::read_to_string(path).unwrap_or_default().split_whitespace().count()
}
