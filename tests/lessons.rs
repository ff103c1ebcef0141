//! Every lesson shows what it claims, on a real `holdfast up`, and leaves nothing behind.
//!
//! One test plays them in order through the API. A lesson that shows a failure fails here when the
//! failure no longer shows. Needs Postgres and Redis (script/test installs them).

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod common;

use std::time::{Duration, Instant};

use holdfast::lab::lessons::LESSONS;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use common::up::{Up, state_of};

/// Upper bound of a lesson on a busy machine.
const LESSON_TIMEOUT: Duration = Duration::from_secs(90);
/// The lab's API, for an admin.
struct Lab<'a> {
    http: Client,
    token: String,
    up: &'a Up,
}

impl<'a> Lab<'a> {
    async fn open(up: &'a Up) -> Self {
        // A killed replica breaks its kept-alive connections.
        let http =
            Client::builder().timeout(LESSON_TIMEOUT).pool_max_idle_per_host(0).build().unwrap();
        let mut lab = Self { http, token: String::new(), up };
        let credentials = json!({"user": "admin", "password": "admin"});
        let session = lab.request(Method::POST, "/api/sessions", Some(credentials)).await.unwrap();
        lab.token = session["token"].as_str().unwrap().to_owned();
        lab
    }

    /// Returns `None` without a successful response: a replica may be restarting.
    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Option<Value> {
        let url = format!("{}{path}", self.up.running.replicas[0]);
        let mut builder = self.http.request(method, url).bearer_auth(&self.token);
        builder = builder.header("Idempotency-Key", Uuid::new_v4().to_string());
        if let Some(body) = body {
            builder = builder.json(&body);
        }
        let response = builder.send().await.ok()?;
        if response.status().is_success() { response.json().await.ok() } else { None }
    }

    /// Plays a lesson to its end.
    async fn play(&self, name: &str) -> Value {
        let began = Instant::now();
        let request_body = json!({"lesson": name});
        let id = loop {
            let response =
                self.request(Method::POST, "/api/lab/runs", Some(request_body.clone())).await;
            if let Some(run) = response {
                break run["id"].as_str().unwrap().to_owned();
            }
            assert!(began.elapsed() < LESSON_TIMEOUT, "{name} could not be queued");
            sleep(Duration::from_millis(50)).await;
        };
        loop {
            let run = self.request(Method::GET, &format!("/api/lab/runs/{id}"), None).await;
            match run {
                Some(run) if run["state"] == "done" || run["state"] == "failed" => return run,
                _ => assert!(began.elapsed() < LESSON_TIMEOUT, "{name} does not end"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lesson_shows_its_claim_and_cleans_up() {
    let up = Up::start(&["--lab", "on"]);
    let lab = Lab::open(&up).await;
    let before = child_count(&up);
    for lesson in LESSONS {
        let began = Instant::now();
        let run = lab.play(lesson.name).await;
        let (verdict, steps) = (&run["verdict"], &run["said"]);
        println!("{:5.1} s  {:18} {verdict}", began.elapsed().as_secs_f64(), lesson.name);
        assert_eq!(run["state"], "done", "{}: {verdict}\n{steps:#}", lesson.name);
        assert_eq!(run["claim_shown"], true, "{}: {verdict}\n{run:#}", lesson.name);
        assert!(!steps.as_array().unwrap().is_empty(), "{} says what it does", lesson.name);
    }
    assert_eq!(child_count(&up), before, "every Redis of a lesson's own has ended");
    let audit = lab.request(Method::GET, "/api/audit", None).await.expect("the audit");
    assert_eq!(audit["ok"], true, "{audit:#}");
    assert_no_key_without_expiry(&up.running.redis_url).await;
    for (role, pid) in up.children() {
        assert_ne!(state_of(pid), Some('T'), "{role} is stopped");
    }
}

#[test]
fn lesson_metadata_is_complete_and_ordered() {
    for (at, lesson) in LESSONS.iter().enumerate() {
        assert!(lesson.right < lesson.guesses.len(), "{}", lesson.name);
        assert!((2..=4).contains(&lesson.guesses.len()), "{}", lesson.name);
        assert!(lesson.question.ends_with('?'), "{}", lesson.name);
        assert!(lesson.takeaway.iter().all(|sentence| sentence.ends_with('.')), "{}", lesson.name);
        assert!(LESSONS[..at].iter().all(|other| other.number < lesson.number), "{}", lesson.name);
        for name in lesson.shows {
            assert!(holdfast::lab::source::of(name).is_some(), "{}: {name}", lesson.name);
        }
    }
}

/// Fails if Redis has a key of a lesson, or a key without an expiry.
async fn assert_no_key_without_expiry(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    for key in keys {
        assert!(!key.starts_with("holdfast-lab:"), "{key} is left");
        // The expiry queue has no TTL.
        if key.starts_with("holdfast:expiry:") {
            continue;
        }
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
        assert_ne!(ttl, -1, "{key} has no expiry");
    }
}

/// Returns the number of child processes of `up` (on Linux).
fn child_count(up: &Up) -> usize {
    let path = format!("/proc/{0}/task/{0}/children", up.pid());
    std::fs::read_to_string(path).unwrap_or_default().split_whitespace().count()
}
