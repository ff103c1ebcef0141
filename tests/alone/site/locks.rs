//! The judged locks, the questions, and what no other test opens.

use serde_json::json;

use super::visit::Visit;

/// Searches, and returns the locks that are found.
const SEARCH: &str = "const words = document.querySelector('#words');
    words.value = arguments[0];
    words.dispatchEvent(new Event('input', { bubbles: true }));
    const rows = [...document.querySelectorAll('tr[data-words]')].filter((row) => row.checkVisibility());
    return rows.map((row) => row.querySelector('th').textContent)";

/// Answers, and returns the locks that are left.
const ANSWER: &str = "const questions = document.querySelector('#questions');
    for (const radio of questions.querySelectorAll('input')) {
        radio.checked = arguments[0].includes(`${radio.name}=${radio.value}`);
    }
    questions.dispatchEvent(new Event('change'));
    const left = [...document.querySelectorAll('[data-needs]')].filter((it) => !it.hidden);
    return left.map((it) => it.querySelector('h2').textContent)";

/// Those that no other test opens. Of judgements, lessons and the glossary the shop's tests examine
/// all contents in both languages.
const OTHER_PAGES: [&str; 7] = [
    "lessons.html",
    "zh/docs/index.html",
    "zh/course.html",
    "judged/flock.html",
    "zh/lessons/outlived.html",
    "docs/which-lock.html",
    "zh/docs/glossary.html",
];

impl Visit {
    async fn found(&self, words: &str) -> Vec<String> {
        let found = self.run(SEARCH, &[json!(words)]).await;
        serde_json::from_value(found).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn judged_locks_are_found() {
    let visit = Visit::begin().await;
    for (path, width, scheme) in [("judged.html", 1280, "light"), ("zh/judged.html", 390, "dark")] {
        visit.size(width).await;
        visit.prefer(scheme, "reduce").await;
        visit.open(path).await;
        let every = visit.found("").await.len();
        assert!(every > 15, "only {every} locks");
        let hidden = "const box = document.querySelector('table').parentElement;
            return box.scrollWidth - box.clientWidth";
        let hidden = visit.run(hidden, &[]).await;
        assert!(width < 1280 || hidden == 0, "{hidden} px of the table are hidden");

        let redis_py = visit.found("Redis-PY").await;
        assert!((1..10).contains(&redis_py.len()), "{redis_py:?}");
        assert!(redis_py[0].starts_with("redis-py "), "{redis_py:?}");
        let java = visit.found("java").await;
        let is_curator = |name: &String| name.split_whitespace().next() == Some("Curator");
        assert!(java.len() == 1 && is_curator(&java[0]), "{java:?}");
        for words in ["javas", "rust"] {
            assert!((2..every).contains(&visit.found(words).await.len()), "{words}");
        }

        assert!(visit.found("Go").await.is_empty());
        let said = visit.text("#found").await;
        assert!(said.contains("“Go”"), "{said}");
        let is_seen = "return document.querySelector('table').checkVisibility()";
        assert_eq!(visit.run(is_seen, &[]).await, false, "an empty table");
        let columns = "return document.querySelectorAll('.columns dd').length";
        assert!(visit.run(columns, &[]).await.as_u64() > Some(10));

        let rows = visit.found("redis").await.len();
        let said = visit.text("#found").await;
        let says_rows = said.split(|c: char| !c.is_ascii_digit()).any(|it| it == rows.to_string());
        assert!(says_rows && said.contains('↳'), "{rows} rows: {said}");
        visit.examine(path).await;
    }
    visit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_lead_to_a_lock() {
    let visit = Visit::begin().await;
    visit.prefer("dark", "reduce").await;
    for path in ["which-lock.html", "zh/which-lock.html"] {
        visit.open(path).await;
        for (answers, locks) in [
            (json!([]), json!([])),
            (json!(["processes=one"]), json!(["local"])),
            (json!(["processes=several"]), json!([])),
            (
                json!(["processes=several", "money=yes", "fence=yes", "hot=no", "wait=yes"]),
                json!(["row-lock"]),
            ),
        ] {
            let left = visit.run(ANSWER, std::slice::from_ref(&answers)).await;
            assert_eq!(left, locks, "{answers}");
        }
        visit.examine(path).await;
    }
    visit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_pages_are_accessible() {
    let visit = Visit::begin().await;
    for (number, page) in OTHER_PAGES.iter().enumerate() {
        visit.size([390, 1280][number % 2]).await;
        visit.prefer(["dark", "light"][number / 2 % 2], "reduce").await;
        visit.open(page).await;
        visit.examine(page).await;
    }
    visit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_open_at_their_loss() {
    let visit = Visit::begin().await;
    visit.open("zh/judged/redis-py.html").await;
    visit.browser.until_charts_show_their_loss().await;
    visit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_work_from_the_file_system() {
    let visit = Visit::begin().await;
    visit.size(1280).await;
    visit.open_file("zh/index.html").await;
    visit.plays_all_races().await;

    visit.open_file("zh/lessons/fence.html").await;
    let controls = "return !!document.querySelector('.swimlane .controls button')
        ?.checkVisibility()";
    visit.until("the run can be stepped through", controls, &[]).await;

    visit.open_file("zh/judged.html").await;
    let every = visit.found("").await.len();
    assert!((2..every).contains(&visit.found("redis").await.len()), "the search finds no lock");
    visit.end().await;
}
