//! Every lesson shows what it claims, on a real `holdfast up`, and leaves nothing behind.
//!
//! A lesson that shows a failure fails here when the failure no longer occurs. One test runs all
//! lessons in order, through the API, as a page does.
//! Needs Postgres and Redis installed (script/test installs them).

use std::collections::BTreeSet;
use std::time::Instant;

use holdfast_base::messages::Language;
use holdfast_lab::lessons::{Chapter, LESSONS, Lesson};
use holdfast_testkit::up::{Up, state_of};
use regex::Regex;
use serde_json::{Value, json};

use crate::drawings;
use crate::runs::Lab;

/// The lesson that compares one throughput with another, measured after it: what else the machine
/// does in between can only hide that its claim holds.
const MEASURED: &str = "hot-item";
const MEASUREMENTS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn every_lesson_shows_its_claim() {
    let lab = Lab::start_with(&["--lab", "on"]).await;
    let before = count_children(&lab.up);
    let mut runs = Vec::with_capacity(LESSONS.len());
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
        if let Some((_, measured)) = HEADLINES.iter().find(|(name, _)| *name == lesson.name) {
            assert!(evidence[0]["name"].to_string().contains(measured), "{}", evidence[0]);
        }
        assert_story(lesson.name, lesson.scene, &run);
        assert_scenes(lesson, &run);
        if let Some(beside) = lesson.beside() {
            assert_eq!(lesson.name, BESIDE.0);
            assert_told(lesson.name, beside, BESIDE.1, &run);
        }
        runs.push(run["id"].as_str().unwrap().to_owned());
    }
    drawings::assert_legible(&lab.up.running.replicas[0], &runs).await;
    check_chosen_causes(&lab).await;
    assert_eq!(count_children(&lab.up), before, "every temporary Redis of a lesson has ended");
    lab.assert_sound().await;
    assert_no_locks(&lab.up.running.redis_url).await;
    for (role, pid) in lab.up.children() {
        assert_ne!(state_of(pid), Some('T'), "{role} is stopped");
    }
}

async fn play(lab: &Lab, lesson: &str) -> Value {
    play_with(lab, json!({ "lesson": lesson })).await
}

async fn play_with(lab: &Lab, request: Value) -> Value {
    let began = Instant::now();
    let id = lab.start(&request).await;
    let run = lab.wait_until_over(&id).await;
    let lesson = request["lesson"].as_str().unwrap();
    println!("{:5.1} s  {lesson:18} {}", began.elapsed().as_secs_f64(), run["verdict"]);
    run
}

/// What the one number on the page of a run measures, of lessons that measure several things: what
/// the question asks and the first picture shows.
const HEADLINES: [(&str, &str); 12] = [
    ("big-key", "longest wait of another client"),
    ("two-items", "aborted by Postgres"),
    ("machine-gun", "sent one after the other"),
    ("run-once", "with a lock that was released"),
    ("wrong-key", "taken for two orders of 1.00"),
    ("redlock", "holders at once"),
    ("double-submit", "orders for 3 requests with one key"),
    ("unpaid", "returns of the unit, delivered twice"),
    ("price-changed", "whose page showed 1.00"),
    ("queue", "queued orders without a response"),
    ("units", "units sold to C"),
    ("database", "stock read by the statement that locks"),
];

/// What the first scene of a lesson must tell, in this order: who, what, and the value and fence if
/// they matter. The name is the first word of the lane's.
const STORIES: &[(&str, &str)] = &[
    ("lost-update", "A read 10, A paused, B read 10, B write 9, A resumed, A write 9"),
    ("one-replica", "A read 10, C read 10, C write 9, A write 9"),
    ("database", "A read 10, A write 9, another wait, A resumed, another held, another read 10"),
    (
        "check-then-decrement",
        "A read 1, A paused, B read 1, B write 0, A resumed, A write -1, A committed",
    ),
    ("wrong-key", "A held, A read 1000, B held, B read 1000, B write 900, A write 900"),
    ("dead-holder", "A held, A killed, operator removed, B held, B write 9"),
    ("let-it-expire", "A held, A left, A expired 300, B held, B left, B expired 300, C held"),
    ("wrong-delete", "A expired 300, B held, A foreign, C held, B foreign, D held, C foreign"),
    ("check-then-delete", "A delete, A expired 1500, B held, A foreign, C held, B lost"),
    ("outlived", "A read 10, A expired 300, B read 10, A write 9, A lost, B write 9"),
    ("watchdog", "A stopped, A expired 300, B read 10, A continued, A write 9, A lost"),
    (
        "fence",
        "A held #1, A read 10 #1, A expired 300, B held #2, B read 10 #2, B write 9 #2, \
         A resumed, A stale 2 #1",
    ),
    ("failover", "its cut, A held, primary killed, its promoted, B held"),
    (
        "redlock",
        "A held, A granted, A read 10, A paused, A expired 1000, B held, B granted 1, B granted 5, \
         B read 10, A resumed, A write 9, A lost, B write 9, B release",
    ),
    ("waiting", "A held, A works, B wait, B tries, A worked, A release, B held"),
    ("reentrant", "A held, A wait, A busy, A release"),
    ("two-items", "A held, B held, A wait, B wait"),
    ("early-release", "A write 9, A release, B held, B read 10, A committed, B write 9"),
    ("units", "A read 1, A paused, B read 0, A killed, C read 1, C write 0"),
    ("pre-deduct", "A deducted 3, A paused, A killed, B deducted 2, B committed, C deducted 1"),
    ("double-submit", "A read 10, A write 9, A committed, A killed, B replayed, C replayed"),
    ("machine-gun", "A committed, B committed, C committed, D committed"),
    (
        "unpaid",
        "the read 10, the write 9, the committed, worker read 9, worker write 10, \
         worker committed, worker killed, worker read",
    ),
    (
        "price-changed",
        "A price 100, A wait, A paused, keeper price 200, A resumed, A held, A read 10, A write 9, \
         A committed, A price 200",
    ),
    ("queue", "A held, B wait, C wait, A killed, B killed, C killed"),
    ("run-once", "A held, A release, B held"),
];

/// What the scene below the first one tells.
const BESIDE: (&str, &str) = ("waiting", "A held, A works, B wait, A release, B held");

/// Asserts what the scene that the question asks about shows, and that its lanes are A, B, C.
fn assert_story(lesson: &str, scene: &str, run: &Value) {
    match STORIES.iter().find(|(name, _)| *name == lesson) {
        Some((_, expected)) => assert_told(lesson, scene, expected, run),
        // The picture of `hot-item` is made of its arms.
        None => assert!(scene.is_empty() || lesson == "hot-item", "{lesson} has no story"),
    }
}

/// Asserts that each scene has a name, and a sentence, unless the verdict or the words of the page
/// are about it; and that the sentences have numbers as all results have them.
fn assert_scenes(lesson: &Lesson, run: &Value) {
    let lanes = run["lanes"].as_array().unwrap();
    let single = lanes.iter().filter(|lane| lane["arm"].is_null());
    let scenes: BTreeSet<&str> = single.map(|lane| lane["scene"].as_str().unwrap_or("")).collect();

    let told = run["scenes"].as_array().unwrap();
    let sentence = |scene: &Value| scene["sentence"].as_str().unwrap().to_owned();
    for scene in scenes {
        let title = lesson.scene_title(scene, Language::Chinese);
        assert!(title.is_some(), "{}: {scene} has no name", lesson.name);
        let is_other = scene != lesson.scene && Some(scene) != lesson.beside();
        let is_told = told.iter().any(|told| told["id"] == scene);
        assert_eq!(is_told, is_other, "{}: {scene} in {told:#?}", lesson.name);
    }

    let ungrouped = Regex::new("[0-9]{4}|\\(none\\)").unwrap();
    let verdict = run["verdict"].as_str().unwrap().to_owned();
    for text in told.iter().map(sentence).chain([verdict]) {
        let is_sentence = text.ends_with(['.', ')']);
        assert!(is_sentence && !text.starts_with("not shown"), "{}: {text}", lesson.name);
        assert!(!ungrouped.is_match(&text), "{}: {text}", lesson.name);
    }
    if lesson.name == "two-items" {
        let ended = lanes.iter().flat_map(|lane| lane["events"].as_array().unwrap());
        assert_eq!(ended.filter(|event| event["event"] == "deadlock").count(), 1);
        assert!(lanes.iter().any(|lane| lane["events"].to_string().contains("{sku:coffee}")));
    }
}

fn assert_told(lesson: &str, scene: &str, expected: &str, run: &Value) {
    let mut lanes: Vec<&Value> =
        run["lanes"].as_array().unwrap().iter().filter(|lane| lane["scene"] == scene).collect();
    lanes.sort_by_key(|lane| lane["sent_us"].as_u64());
    let of_requests = lanes.iter().filter(|lane| {
        lane["request_id"].as_str().is_some_and(|id| id.chars().any(|digit| !"0-".contains(digit)))
    });
    let names: Vec<String> = of_requests.map(|lane| name(lane)).collect();
    assert!(lesson == "unpaid" || names.is_sorted(), "{lesson}: {names:?}");

    let mut told: Vec<(u64, String)> = Vec::new();
    for lane in &lanes {
        for event in lane["events"].as_array().unwrap() {
            let mut text = format!("{} {}", name(lane), event["event"].as_str().unwrap());
            for (sign, field) in [("", "value"), ("#", "fence")] {
                if let Some(number) = event[field].as_i64() {
                    text += &format!(" {sign}{number}");
                }
            }
            told.push((event["t_us"].as_u64().unwrap(), text));
        }
    }
    told.sort_by_key(|(at_us, _)| *at_us);

    let mut rest = told.iter();
    for part in expected.split(", ") {
        let is_told = rest.any(|(_, told)| told == part || told.starts_with(&format!("{part} ")));
        assert!(is_told, "{lesson}: {part} of {expected} is missing in {told:#?}");
    }
}

fn name(lane: &Value) -> String {
    let label = lane["label"].as_str().unwrap();
    label.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// A lease, a pause, a gap and a retry interval of a visitor's choice: the clock alone decides.
async fn check_chosen_causes(lab: &Lab) {
    for (request, is_shown) in [
        (json!({ "lesson": "outlived", "ttl_ms": 2_000, "work_ms": 100 }), false),
        (json!({ "lesson": "outlived", "ttl_ms": 100, "work_ms": 800 }), true),
        (json!({ "lesson": "lost-update", "gap_ms": 500 }), true),
    ] {
        let run = play_with(lab, request.clone()).await;
        assert_eq!(run["state"], "done", "{request}: {run:#}");
        assert_eq!(run["claim_shown"], is_shown, "{request}: {run:#}");
        let events = run["lanes"].as_array().unwrap().iter().map(|lane| &lane["events"]);
        let mut events = events.flat_map(|events| events.as_array().unwrap());
        let is_expired = events.any(|event| event["event"] == "expired");
        assert_eq!(is_expired, request["ttl_ms"] == 100, "{request}: {run:#}");
    }

    let request =
        json!({ "lesson": "waiting", "retry_ms": 1_000, "buyers": 2, "orders": 2, "work_ms": 0 });
    let run = play_with(lab, request).await;
    let lanes = run["lanes"].as_array().unwrap();
    let b = lanes.iter().find(|lane| lane["label"] == "B").unwrap();
    let at = |name: &str| {
        let mut events = b["events"].as_array().unwrap().iter();
        events.find(|event| event["event"] == name).and_then(|event| event["t_us"].as_u64())
    };
    assert!(at("held").unwrap() - at("wait").unwrap() >= 500_000, "{b:#}");
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
        // Title, question, primer, claim, answers, takeaways.
        texts += 4 + 4 + 3;
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
