//! Every lesson shows what it claims, on a real `holdfast up`, and leaves nothing behind.
//!
//! A lesson that shows a failure fails here when the failure no longer occurs. One test runs all
//! lessons in order, through the API, as a page does.
//! Needs Postgres and Redis installed (script/test installs them).

use std::collections::BTreeSet;
use std::time::Instant;

use holdfast_base::messages::Language;
use holdfast_lab::lessons::{Chapter, LESSONS};
use holdfast_testkit::up::{Up, state_of};
use regex::Regex;
use serde_json::{Value, json};

use crate::runs::Lab;

/// The lesson that compares one throughput with another, measured after it: what else the machine
/// does in between can only hide that its claim holds.
const MEASURED: &str = "hot-item";
const MEASUREMENTS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn every_lesson_shows_its_claim() {
    let lab = Lab::start_with(&["--lab", "on"]).await;
    let before = count_children(&lab.up);
    for lesson in LESSONS {
        let mut run = play(&lab, lesson.name).await;
        for _ in 1..MEASUREMENTS {
            if run["claim_shown"] == true || lesson.name != MEASURED {
                break;
            }
            run = play(&lab, lesson.name).await;
        }
        let (verdict, steps) = (&run["verdict"], &run["said"]);
        assert_eq!(run["state"], "done", "{}: {verdict}\n{steps:#}", lesson.name);
        assert_eq!(run["claim_shown"], true, "{}: {verdict}\n{run:#}", lesson.name);
        assert!(!steps.as_array().unwrap().is_empty(), "{} reports its steps", lesson.name);
        let evidence = run["evidence"].as_array().unwrap();
        let supports = |evidence: &Value| evidence["ok"] == true;
        assert!(!evidence.is_empty() && evidence.iter().all(supports), "{run:#}");
    }
    assert_eq!(count_children(&lab.up), before, "every temporary Redis of a lesson has ended");
    lab.assert_sound().await;
    assert_no_locks(&lab.up.running.redis_url).await;
    for (role, pid) in lab.up.children() {
        assert_ne!(state_of(pid), Some('T'), "{role} is stopped");
    }
}

async fn play(lab: &Lab, lesson: &str) -> Value {
    let began = Instant::now();
    let id = lab.start(&json!({ "lesson": lesson })).await;
    let run = lab.wait_until_over(&id).await;
    println!("{:5.1} s  {lesson:18} {}", began.elapsed().as_secs_f64(), run["verdict"]);
    run
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
            assert!(holdfast_lab::source::of(name).is_some(), "{}: {name}", lesson.name);
        }
    }
    // No text belongs to a lesson that does not exist.
    let catalogue = include_str!("../../locales/en/lessons.ftl");
    let messages = catalogue.lines().filter(|line| line.starts_with("lesson-")).count();
    assert_eq!(messages, texts + Chapter::ALL.len());
}

/// The answers of a document: each a number, a sentence, a link to a lesson and a message id in a
/// comment.
fn responses(document: &str) -> Vec<(String, String, String)> {
    let response = Regex::new(r"(?m)^\d+\. (.+)\n   \[.+\]\((.+)\) <!-- (.+) -->$").unwrap();
    let found = response.captures_iter(document);
    found.map(|found| (found[1].into(), found[2].into(), found[3].into())).collect()
}

#[test]
fn quiz_answers_are_in_linked_lessons() {
    let english = responses(include_str!("../../docs/TEACHING.md"));
    let chinese = responses(include_str!("../../docs/TEACHING.zh.md"));
    for (language, responses) in Language::ALL.into_iter().zip([&english, &chinese]) {
        assert_eq!(responses.len(), 10, "{responses:#?}");
        for (sentence, link, id) in responses {
            assert_eq!(&language.text(id), sentence, "{id}");
            let lesson = LESSONS.iter().find(|lesson| link.ends_with(&format!("/{}", lesson.name)));
            let lesson = lesson.unwrap();
            assert!(link.contains(&format!("/language/{}?", language.tag())), "{link}");
            let shown = [lesson.takeaways(language), vec![lesson.claim(language)]].concat();
            assert!(shown.contains(sentence), "{id} is not in {}", lesson.name);
        }
    }
    let ids = |responses: &[(String, String, String)]| -> Vec<String> {
        responses.iter().map(|(.., id)| id.clone()).collect()
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
