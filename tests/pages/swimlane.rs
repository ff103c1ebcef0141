//! The lab in a real browser: swimlanes by keyboard and on a small screen, and a run that is
//! followed to its end.

use holdfast_testkit::{TestShop, until};
use serde_json::json;
use thirtyfour::prelude::*;

use crate::browser::Browser;
use crate::lab::{oversold, with_run};

async fn open_run(shop: &TestShop, javascript: bool) -> Browser {
    let browser = Browser::open(&shop.replicas[0].base_url, javascript).await;
    browser.go(&format!("/lab/runs/{}", oversold().id)).await;
    browser.until_path("/lab/runs/").await;
    browser
}

async fn number(browser: &Browser, script: &str) -> i64 {
    let value = browser.driver.execute(format!("return {script}"), vec![]).await.unwrap();
    value.json().as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn swimlane_steps_by_keyboard() {
    let shop = with_run(&oversold()).await;
    let browser = open_run(&shop, true).await;
    let slider = browser.find(".swimlane input[type=range]").await;
    let press = async |key: Key, text: &str| {
        slider.send_keys(key).await.unwrap();
        browser.until_text(".step-description", text).await;
    };
    press(Key::Home, "Step 1 of 16 0.0 ms · 8080 · order 1 is sent").await;
    press(Key::Right, "Step 2 of 16 0.1 ms · 8080 · order 1 begins, without a Redis lock").await;
    press(Key::Right, "Step 3 of 16 1.0 ms · 8080 · order 1 reads 57").await;
    browser.until_text(".step-command", "select stock, version from items").await;
    press(Key::Left, "Step 2 of 16").await;
    press(Key::Left, "Step 1 of 16").await;
    press(Key::Left, "Step 1 of 16").await;
    press(Key::End, "Step 16 of 16 10.9 ms · 8081 · order 2 is answered 201").await;
    browser.click(".swimlane .back").await;
    browser.until_text(".step-description", "Step 15 of 16").await;
    browser.click(".swimlane .play").await;
    browser.until_text(".step-description", "Step 16 of 16").await;

    browser.click("details.details > summary").await;
    browser.click("#tab-forks-title").await;
    let fork = browser.find("details.fork summary").await;
    fork.send_keys(Key::Enter).await.unwrap();
    browser.until_text("details.fork .step-description", "Step 14 of 16").await;
    until("the curve is drawn", async || {
        number(&browser, "document.querySelectorAll('.u-wrap').length").await == 1
    })
    .await;
    assert_eq!(browser.console_errors().await, Vec::<serde_json::Value>::new());
    browser.close().await;
}

/// A run opens on the commit that lost an update. Its playback begins at the first step and lasts
/// several seconds; with reduced motion there is none.
#[tokio::test(flavor = "multi_thread")]
async fn swimlane_plays_slowly_from_first_step() {
    let shop = with_run(&oversold()).await;
    let browser = open_run(&shop, true).await;
    browser.until_text(".step-description", "Step 14 of 16").await;
    // Seen steps are recorded with their times by the page itself, since a poll may miss one.
    let record = "document.querySelector('.swimlane .play').click();
        window.seen = [];
        const slider = document.querySelector('.swimlane input[type=range]');
        const look = () => {
          const at = [+slider.value, Math.round(performance.now())];
          if (seen.at(-1)?.[0] !== at[0]) seen.push(at);
          requestAnimationFrame(look);
        };
        look();";
    browser.driver.execute(record, vec![]).await.unwrap();
    browser.until_text(".step-description", "Step 16 of 16").await;
    let first = number(&browser, "seen[0][0]").await;
    let took = number(&browser, "seen.at(-1)[1] - seen[0][1]").await;
    assert_eq!(first, 1);
    assert!((4_000..=8_500).contains(&took), "it took {took} ms");

    browser.prefer("prefers-reduced-motion", "reduce").await;
    browser.driver.refresh().await.unwrap();
    browser.until_text(".step-description", "Step 14 of 16").await;
    assert!(!browser.find(".swimlane .play").await.is_displayed().await.unwrap());
    browser.click(".swimlane .back").await;
    browser.until_text(".step-description", "Step 13 of 16").await;
    assert_eq!(browser.console_errors().await, Vec::<serde_json::Value>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swimlane_fits_phone_with_legible_labels() {
    let shop = with_run(&oversold()).await;
    let browser = open_run(&shop, true).await;
    browser.resize(360, 740).await;
    browser.driver.refresh().await.unwrap();
    browser.find(".timeline svg").await;
    let all = "[...document.querySelectorAll('.timeline text')]";
    let scroll = "(t => t.scrollWidth - t.clientWidth)(document.querySelector('.timeline'))";
    assert_eq!(number(&browser, scroll).await, 0, "the swimlane scrolls sideways");
    let smallest = format!("Math.min(...{all}.map(t => parseFloat(getComputedStyle(t).fontSize)))");
    assert!(number(&browser, &smallest).await >= 14);
    let outside = format!(
        "{all}.filter(t => (b => b.left < 0 || b.right > 360)(t.getBoundingClientRect())).length"
    );
    assert_eq!(number(&browser, &outside).await, 0, "labels leave the screen");
    for shown in ["read 57", "write 56"] {
        let count = format!("{all}.filter(t => t.textContent === '{shown}').length");
        assert!(number(&browser, &count).await >= 2, "{shown}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_page_updates_until_the_end() {
    let mut run = oversold();
    run.state = holdfast_lab::run::LabRunState::Running;
    let outcome = std::mem::take(&mut run.outcome);
    let shop = with_run(&run).await;
    for javascript in [true, false] {
        let running = "update lab_runs set state = 'running', outcome = null, frame = 1";
        sqlx::query(running).execute(&shop.pool).await.unwrap();
        let browser = open_run(&shop, javascript).await;
        browser.until_text("#state", "Running").await;
        let progress = json!({
            "said": ["A crowd comes."], "arms": 2, "arm": 1, "strategy": "batched",
            "samples": [{ "t_ms": 0, "sold": 1, "stock": 56, "oversold": 0, "answered": 1,
                          "waiting": 3, "p50_ms": 4.2, "p99_ms": 17.9 },
                        { "t_ms": 100, "sold": 41, "stock": 16, "oversold": 2, "answered": 44,
                          "waiting": 7, "p50_ms": 4.2, "p99_ms": 17.9 }],
        });
        let show = "update lab_runs set progress = $1, frame = frame + 1";
        sqlx::query(show).bind(&progress).execute(&shop.pool).await.unwrap();
        browser.until_text("#run-steps li", "A crowd comes.").await;
        browser.until_text("[data-figure=sold]", "41").await;
        browser.until_text("#arm", "batched").await;
        let end = "update lab_runs set state = 'done', outcome = $1, frame = frame + 1";
        let outcome = serde_json::to_value(&outcome).unwrap();
        sqlx::query(end).bind(outcome).execute(&shop.pool).await.unwrap();
        browser.until_text("#verdict", "43 units that do not exist").await;
        browser.until_text(".takeaways", "is two steps").await;
        if javascript {
            assert_eq!(browser.console_errors().await, Vec::<serde_json::Value>::new());
        }
        browser.close().await;
    }
}
