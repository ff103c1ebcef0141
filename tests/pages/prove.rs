//! Where one chooses a lock, and proves it.

use holdfast_testkit::Shop;

use crate::visitor::Visitor;

/// The tabs of the room: the question, the evidence, and the exercise.
const TABS: [(&str, &str); 3] =
    [("/which-lock", "Which lock?"), ("/lab/judged", "Judged"), ("/lab/course", "Course")];

#[tokio::test(flavor = "multi_thread")]
async fn question_evidence_and_exercise_are_one_room() {
    let shop = Shop::start(1).await;
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
async fn course_has_the_task_of_each_level() {
    let shop = Shop::start(1).await;
    let visitor = Visitor::new(&shop);
    for (language, task) in [
        ("en", "Others get it within two leases, and no key is left."),
        ("zh", "别人要在两个租约之内拿到锁，并且不留下键。"),
    ] {
        let words = visitor.get_in(language, "/lab/course").await.words();
        assert!(words.contains(task) && !words.contains("Unknown localization key"), "{words}");
    }
}
