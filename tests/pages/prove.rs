//! Where one chooses a lock, and proves it.

use holdfast_testkit::TestShop;

use crate::visitor::Visitor;

/// The tabs of the room: the question, the evidence, and the exercise.
const TABS: [(&str, &str); 3] =
    [("/which-lock", "Which lock?"), ("/lab/judged", "Judged"), ("/lab/course", "Course")];

#[tokio::test(flavor = "multi_thread")]
async fn question_evidence_and_exercise_are_one_room() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let map = visitor.get("/lab").await.text;
    let entry = map.split("id=\"prove-title\"").nth(1).unwrap().split("</section>").next().unwrap();
    for (path, title) in TABS {
        assert!(entry.contains(&format!("href=\"{path}\">{title}</a>")), "{path}: {entry}");

        let page = visitor.get(path).await.text;
        let tabs = page.split("aria-label=\"Choose and prove\"").nth(1).unwrap();
        let tabs = tabs.split("</nav>").next().unwrap();
        for (tab, title) in TABS {
            let current = if tab == path { " aria-current=\"page\"" } else { "" };
            let link = format!("<a href=\"{tab}\"{current}>{title}</a>");
            assert!(tabs.contains(&link), "{path}: {tabs}");
        }
        assert!(page.contains("<a href=\"/lab\" aria-current=\"page\">Lab</a>"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn course_shows_level_1_being_solved() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    for (language, texts) in [
        (
            "en",
            [
                "none: w1 c4 and w0 c6 both read 999,977",
                "447 ms w1 c4 has the lock",
                "Not passed (lock.py, seed 7)",
                "Passed (lock.py, seed 7)",
                "Others get it within two leases, and no key is left.",
            ],
        ),
        (
            "zh",
            [
                "none：w1 c4 和 w0 c6 都读到 999,977",
                "447 ms w1 c4 获得锁",
                "没有通过（lock.py，种子 7）",
                "通过（lock.py，种子 7）",
                "别人要在两个租约之内拿到锁，并且不留下 key。",
            ],
        ),
    ] {
        let page = visitor.get_in(language, "/lab/course").await;
        let words = page.words();
        for text in texts {
            assert!(words.contains(text), "{text}: {words}");
        }
        assert!(!words.contains("Unknown localization key"), "{words}");
        let picture = page.text.split("aria-labelledby=\"collision\"").nth(1).unwrap();
        assert_eq!(
            picture.split("</svg>").next().unwrap().matches("loss\"><").count(),
            1,
            "the late write"
        );
    }
}
