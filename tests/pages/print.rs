//! Tabs and paper: the other scenes of a run are tabs with a name. What is printed has all of its
//! pictures, the words that they need, and nothing to press.

use holdfast_base::messages::Language;
use holdfast_lab::lessons;
use holdfast_lab::run::LabRun;
use holdfast_lab::store;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::browser::Browser;
use crate::lab::{oversold, with_run};
use crate::race::bottom_of;
use crate::slow_motion::lane;
use crate::visitor::Visitor;

/// A4 portrait within the margins, in pixels.
const A4: (u32, u32) = (703, 1032);

/// Returns a run of a lesson with an order in each of the scenes, which is paused.
fn run_of(lesson: &str, scenes: &[&str]) -> LabRun {
    let mut run = LabRun { id: Uuid::now_v7(), ..oversold() };
    run.request.lesson = Some(lesson.to_owned());
    let events = ["wait", "read 10", "paused", "+20 resumed", "write 9", "commit", "committed"];
    let lanes = scenes.iter().zip(1..).map(|(scene, id)| {
        let lane = lane(scene, id, &format!("order {id}"), u64::from(id), &events, Some(201));
        serde_json::from_value(lane).unwrap()
    });
    run.outcome.lanes = lanes.collect();
    run
}

/// Shows the page as it is printed on A4.
async fn print(browser: &Browser) {
    browser.devtools("Emulation.setEmulatedMedia", json!({ "media": "print" })).await;
    browser.resize(A4.0, A4.1).await;
}

/// Returns those of the selectors of which nothing is shown.
async fn unseen(browser: &Browser, selectors: &[&str]) -> Vec<String> {
    let script = "return arguments[0].filter((css) =>
        ![...document.querySelectorAll(css)].some((it) => it.checkVisibility()))";
    let unseen = browser.driver.execute(script, vec![json!(selectors)]).await.unwrap();
    unseen.convert().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_scenes_are_tabs_and_all_pictures_are_printed() {
    let run = run_of("double-submit", &["killed", "killed", "double-click", "other"]);
    let dragged = run_of("lost-update", &["pair", "pair"]);
    let shop = with_run(&run).await;
    assert!(store::import(&shop.pool.clone().into(), &dragged).await.unwrap());
    let lesson = lessons::named("double-submit").unwrap();
    let title = lesson.scene_title("double-click", Language::English).unwrap();
    let path = format!("/lab/runs/{}", run.id);
    let file = Visitor::new(&shop).get(&format!("{path}/file")).await.text;
    // A scene without a name has those of its lanes.
    for tab in [format!("<h3 id=\"scene-1\">{title}<"), "<h3 id=\"scene-2\">order 4<".to_owned()] {
        assert!(file.contains(&tab), "{tab}");
    }

    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go(&path).await;
    browser.until_text("#tab-scene-1", &title).await;
    browser.click("#tab-scene-2").await;
    let [first, second] = ["[data-scene=double-click] svg", "[data-scene=other] svg"];
    assert_eq!(unseen(&browser, &[first, second, ".printed"]).await, [first, ".printed"]);
    print(&browser).await;
    let pictures = [".player svg", first, second, ".printed dt"];
    assert_eq!(unseen(&browser, &pictures).await, [""; 0]);

    browser.prefer("prefers-reduced-motion", "reduce").await;
    browser.go(&format!("/lab/runs/{}", dragged.id)).await;
    let pressed = [
        ".controls",
        ".handles input",
        ".legend .screen",
        ".beside",
        ".steps",
        ".buttons",
        "nav",
        ".bar",
    ];
    browser.find(".swimlane[role]").await;
    assert_eq!(unseen(&browser, &pressed).await, [""; 0]);
    print(&browser).await;
    assert_eq!(unseen(&browser, &pressed).await, pressed);
    assert!(browser.width().await <= i64::from(A4.0));
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handout_and_judged_table_are_printed() {
    let shop = with_run(&oversold()).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    print(&browser).await;
    for lesson in lessons::LESSONS {
        browser.go(&format!("/lab/lessons/{}", lesson.name)).await;
        let parts = [".handout .sketch", ".handout dt", ".handout .answers", ".screen"];
        assert_eq!(unseen(&browser, &parts).await, [".screen"], "{}", lesson.name);
        // The question, with lines to write on, is on the first page.
        let bottom = bottom_of(&browser, ".handout > :nth-last-child(2)").await;
        assert!(bottom <= f64::from(A4.1), "{}: {bottom}", lesson.name);
    }

    browser.go("/lab/judged").await;
    assert_eq!(unseen(&browser, &[".judged.list .date", "#search"]).await, ["#search"]);
    let width = browser.width().await;
    assert!(width <= i64::from(A4.0), "{width}");
    browser.close().await;
}
