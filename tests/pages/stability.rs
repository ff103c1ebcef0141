//! What a page does while it loads and while its connection breaks: no layout shift, nothing wider
//! than the screen, and a run that is followed again after its event stream was lost.

use holdfast_lab::run::{LabRun, LabRunState, RunResult};
use holdfast_testkit::ports::free_ports;
use holdfast_testkit::{TestShop, until};
use serde_json::Value;

use crate::browser::Browser;
use crate::lab::{ID, oversold, with_run};
use crate::race::bottom_of;

/// Returns the sum of all layout shifts of the page so far.
const SHIFTS: &str = "const done = arguments[0];
    if (!PerformanceObserver.supportedEntryTypes.includes('layout-shift')) return done(-1);
    let sum = 0;
    new PerformanceObserver((list) => {
        for (const shift of list.getEntries()) if (!shift.hadRecentInput) sum += shift.value;
    }).observe({ type: 'layout-shift', buffered: true });
    const settle = (frames) => frames ? requestAnimationFrame(() => settle(frames - 1)) : done(sum);
    document.fonts.ready.then(() => settle(5));";

const SCREENS: [(u32, u32); 2] = [(1280, 720), (360, 740)];

pub async fn shifts(browser: &Browser) -> f64 {
    let shifts = browser.driver.execute_async(SHIFTS, vec![]).await.unwrap();
    shifts.json().as_f64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_do_not_shift_while_loading() {
    let shop = with_run(&oversold()).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    let mut measured = Vec::new();
    for screen in SCREENS {
        browser.resize(screen.0, screen.1).await;
        for path in ["/", "/shop", "/lab/lessons/lost-update", &format!("/lab/runs/{ID}")] {
            browser.go(path).await;
            if path.contains("/runs/") {
                let bottom = bottom_of(&browser, "#verdict").await;
                assert!(bottom < f64::from(screen.1), "the verdict ends at {bottom}");
                let bottom = bottom_of(&browser, "details.details > summary").await;
                assert!(screen.0 < 1280 || bottom <= 2400.0, "the details begin at {bottom}");
            }
            measured.push((screen.0, path.to_owned(), shifts(&browser).await));
        }
    }
    println!("{measured:?}");
    assert!(measured.iter().all(|(.., shift)| (0.0..0.01).contains(shift)), "{measured:?}");

    // The measurement finds a shift.
    let push = "document.querySelector('main').style.marginTop = '200px'";
    browser.driver.execute(push, vec![]).await.unwrap();
    until("a shift is measured", async || shifts(&browser).await > 0.01).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_does_not_shift_the_page() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    for screen in SCREENS {
        browser.resize(screen.0, screen.1).await;
        browser.go("/").await;
        browser.click("#race-go").await;
        browser.until_text("#race-verdict", "existed").await;
        // By then the buttons and the hint are shown, too.
        browser.until_text("#race-step", "Step").await;
        let shifts = shifts(&browser).await;
        assert!((0.0..0.01).contains(&shifts), "{screen:?}: {shifts}");
    }
    browser.close().await;
}

/// Also pages of the lab, and names of goods, which are free text: in a script that runs from right
/// to left, and without a space.
#[tokio::test(flavor = "multi_thread")]
async fn pages_fit_a_small_screen() {
    let shop = with_run(&oversold()).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("deadbolt", 1).ok().await;
    let name = format!("قفل الباب {} \u{202e}abc", "طويل".repeat(20));
    sqlx::query("update items set name = $1 where sku = 'deadbolt'")
        .bind(&name)
        .execute(&shop.pool)
        .await
        .unwrap();
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/sign-in").await;
    browser.sign_in("alice").await;
    browser.until_path("/shop").await;
    let order = format!("/orders/{}", order["id"].as_str().unwrap());
    let run = format!("/lab/runs/{ID}");
    for colors in ["none", "active"] {
        browser.prefer("forced-colors", colors).await;
        browser.resize(320, 640).await;
        for path in [
            "/shop",
            "/items/deadbolt",
            "/orders",
            &order,
            "/",
            "/lab",
            "/lab/runs",
            "/lab/lessons/lost-update",
            &run,
            "/lab/scheduler",
        ] {
            browser.go(path).await;
            if path == run {
                browser.find(".timeline svg").await;
            }
            let open = "document.querySelectorAll('details').forEach((it) => { it.open = true; })";
            browser.driver.execute(open, vec![]).await.unwrap();
            let width = browser.width().await;
            assert!(width <= 320, "{path} with forced colors {colors}: {width} wide");
        }
    }
    // A reversing mark inside of a name does not reverse the text after it.
    browser.go("/items/deadbolt").await;
    let heading = browser.find("h1 bdi, h1[dir='auto'], bdi h1").await;
    assert!(heading.text().await.unwrap().contains("قفل"));
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}

/// A run that executes, with one step so far.
fn running() -> LabRun {
    let mut run = oversold();
    run.state = LabRunState::Running;
    run.outcome = RunResult::default();
    run.progress.steps = vec!["A has read 57.".into()];
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_event_stream_is_reported_and_recovered() {
    let address = format!("127.0.0.1:{}", free_ports(1));
    let mut shop = TestShop::without_replicas().await;
    shop.add_replica(&[("HOLDFAST_LISTEN", &address)]);
    assert!(holdfast_lab::store::import(&shop.pool.clone().into(), &running()).await.unwrap());
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go(&format!("/lab/runs/{ID}")).await;
    browser.until_text("#run-steps", "A has read 57.").await;
    browser.until_text("#state", "Running").await;
    assert_eq!(browser.find("#connection").await.text().await.unwrap(), "");

    shop.replicas[0].kill();
    browser.until_text("#connection", "Connection lost. Reconnecting").await;
    browser.until_text("#books", "books last checked at").await;
    shop.add_replica(&[("HOLDFAST_LISTEN", &address)]);
    until("the connection is there again", async || {
        browser.find("#connection").await.text().await.is_ok_and(|text| text.is_empty())
    })
    .await;

    let outcome: Value = serde_json::to_value(&oversold().outcome).unwrap();
    let finish = "update lab_runs set state = 'done', outcome = $1, frame = frame + 1";
    sqlx::query(finish).bind(outcome).execute(&shop.pool).await.unwrap();
    browser.until_text("#verdict", "43").await;
    browser.close().await;
}
