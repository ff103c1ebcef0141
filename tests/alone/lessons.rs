//! Every lesson shows what it claims, on a real `holdfast up`, and leaves nothing behind.
//!
//! A lesson that shows a failure fails here when the failure no longer occurs. One test runs all
//! lessons in order, through the API, as a page does.
//! Needs Postgres and Redis installed (script/test installs them).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use holdfast::lab::lessons::{Chapter, LESSONS};
use holdfast::messages::Language;
use regex::Regex;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use crate::common::up::{Up, state_of};
use crate::whole_machine;

/// Upper bound of a lesson's duration on a busy machine.
const LESSON_TIMEOUT: Duration = Duration::from_secs(90);
/// A client of the lab's API, signed in as admin.
struct Lab<'a> {
    http: Client,
    token: String,
    up: &'a Up,
}

impl<'a> Lab<'a> {
    async fn open(up: &'a Up) -> Self {
        // No connection pool: a killed replica closes the connections that a client keeps.
        let http =
            Client::builder().timeout(LESSON_TIMEOUT).pool_max_idle_per_host(0).build().unwrap();
        let mut lab = Self { http, token: String::new(), up };
        let credentials = json!({"user": "admin", "password": "admin"});
        let session = lab.call(Method::POST, "/api/sessions", Some(credentials)).await.unwrap();
        lab.token = session["token"].as_str().unwrap().to_owned();
        lab
    }

    /// Sends a request. `None` without a successful response: a replica may be restarting.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Option<Value> {
        let url = format!("{}{path}", self.up.running.replicas[0]);
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        request = request.header("Idempotency-Key", Uuid::new_v4().to_string());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.ok()?;
        if response.status().is_success() { response.json().await.ok() } else { None }
    }

    /// Runs a lesson to its end.
    async fn run_lesson(&self, name: &str) -> Value {
        let began = Instant::now();
        let request = json!({"lesson": name});
        let id = loop {
            let created = self.call(Method::POST, "/api/lab/runs", Some(request.clone())).await;
            if let Some(run) = created {
                break run["id"].as_str().unwrap().to_owned();
            }
            assert!(began.elapsed() < LESSON_TIMEOUT, "{name} could not be queued");
            sleep(Duration::from_millis(50)).await;
        };
        loop {
            let run = self.call(Method::GET, &format!("/api/lab/runs/{id}"), None).await;
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
    let _machine = whole_machine();
    let up = Up::start(&["--lab", "on"]);
    let lab = Lab::open(&up).await;
    let before = count_children(&up);
    for lesson in LESSONS {
        let began = Instant::now();
        let run = lab.run_lesson(lesson.name).await;
        let (verdict, steps) = (&run["verdict"], &run["said"]);
        println!("{:5.1} s  {:18} {verdict}", began.elapsed().as_secs_f64(), lesson.name);
        assert_eq!(run["state"], "done", "{}: {verdict}\n{steps:#}", lesson.name);
        assert_eq!(run["claim_shown"], true, "{}: {verdict}\n{run:#}", lesson.name);
        assert!(!steps.as_array().unwrap().is_empty(), "{} reports its steps", lesson.name);
        let evidence = run["evidence"].as_array().unwrap();
        let supports = |evidence: &Value| evidence["ok"] == true;
        assert!(!evidence.is_empty() && evidence.iter().all(supports), "{run:#}");
    }
    assert_eq!(count_children(&up), before, "every temporary Redis of a lesson has ended");
    let audit = lab.call(Method::GET, "/api/audit", None).await.expect("the audit");
    assert_eq!(audit["ok"], true, "{audit:#}");
    assert_no_locks(&up.running.redis_url).await;
    for (role, pid) in up.children() {
        assert_ne!(state_of(pid), Some('T'), "{role} is stopped");
    }
}

#[test]
fn lesson_definitions_are_valid() {
    let mut texts = 0;
    for (at, lesson) in LESSONS.iter().enumerate() {
        assert_eq!(lesson.number(), at + 1, "{}", lesson.name);
        assert!(at == 0 || LESSONS[at - 1].chapter <= lesson.chapter, "{}", lesson.name);
        let guesses = Language::ALL.map(|language| lesson.guesses(language));
        assert!(lesson.right < guesses[0].len() && guesses[0].len() == 4, "{}", lesson.name);
        for (language, guesses) in Language::ALL.into_iter().zip(guesses) {
            let distinct: BTreeSet<&String> = guesses.iter().collect();
            assert_eq!(distinct.len(), 4, "{}: {guesses:?}", lesson.name);
            let question = lesson.question(language);
            assert!(question.ends_with(['?', '？']), "{question}");
            for sentence in [lesson.takeaways(language), vec![lesson.claim(language)]].concat() {
                assert!(sentence.ends_with(['.', '。', '」']), "{sentence}");
            }
        }
        texts += 2 + 1 + 4 + 3;
        for name in lesson.shows {
            assert!(holdfast::lab::source::of(name).is_some(), "{}: {name}", lesson.name);
        }
    }
    // No text of a lesson that is not there.
    let catalogue = include_str!("../../locales/en/lessons.ftl");
    let messages = catalogue.lines().filter(|line| line.starts_with("lesson-")).count();
    assert_eq!(messages, texts + Chapter::ALL.len());
}

/// The answers of a document: each a number, a sentence, a link to a lesson and a message id in a
/// comment.
fn answers(document: &str) -> Vec<(String, String, String)> {
    let answer = Regex::new(r"(?m)^\d+\. (.+)\n   \[.+\]\((.+)\) <!-- (.+) -->$").unwrap();
    let found = answer.captures_iter(document);
    found.map(|found| (found[1].into(), found[2].into(), found[3].into())).collect()
}

#[test]
fn quiz_answers_stand_in_linked_lessons() {
    let english = answers(include_str!("../../docs/TEACHING.md"));
    let chinese = answers(include_str!("../../docs/TEACHING.zh.md"));
    for (language, answers) in Language::ALL.into_iter().zip([&english, &chinese]) {
        assert_eq!(answers.len(), 10, "{answers:#?}");
        for (sentence, link, id) in answers {
            assert_eq!(&language.text(id), sentence, "{id}");
            let lesson = LESSONS.iter().find(|lesson| link.ends_with(&format!("/{}", lesson.name)));
            let lesson = lesson.unwrap();
            assert!(link.contains(&format!("/language/{}?", language.tag())), "{link}");
            let shown = [lesson.takeaways(language), vec![lesson.claim(language)]].concat();
            assert!(shown.contains(sentence), "{id} is not in {}", lesson.name);
        }
    }
    let ids = |answers: &[(String, String, String)]| -> Vec<String> {
        answers.iter().map(|(.., id)| id.clone()).collect()
    };
    assert_eq!(ids(&english), ids(&chinese));
}

/// Asserts that no lock key lacks an expiry, and that no key of a lesson remains.
async fn assert_no_locks(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    for key in keys {
        assert!(!key.starts_with("holdfast-lab:"), "{key} is left");
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
        assert_ne!(ttl, -1, "{key} has no expiry");
    }
}

/// Counts the child processes of `up` (Linux only).
fn count_children(up: &Up) -> usize {
    let path = format!("/proc/{0}/task/{0}/children", up.pid());
    std::fs::read_to_string(path).unwrap_or_default().split_whitespace().count()
}
