//! The game *You are the scheduler*: without a session, by keyboard and touch, and without
//! JavaScript.

use std::collections::BTreeSet;

use holdfast_testkit::Shop;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::race::bottom_of;
use crate::visitor::{Page, Visitor};

fn duplicate_ids(page: &Page) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let ids = page.text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    ids.filter(|id| !seen.insert(*id)).map(str::to_owned).collect()
}

/// Plays a level with forms; returns the path of the game and its page after the last step.
async fn play(visitor: &Visitor, level: &str, script: &str) -> (String, Page) {
    let csrf = visitor.get("/lab/scheduler").await.csrf();
    let begun = visitor.post("/lab/scheduler", &format!("level={level}&csrf={csrf}")).await;
    assert_eq!(begun.status, 303, "{}", begun.words());
    let path = begun.location;
    for step in script.chars() {
        let who = if step == 'X' { "expire".to_owned() } else { step.to_string() };
        let page = visitor.get(&path).await;
        // The pause of this order, as its own form names it.
        let form = page.text.split("name=\"since\" value=\"").skip(1);
        let pause = form.filter(|form| form.contains(&format!("id=\"step-{who}\""))).last();
        let since = pause.and_then(|form| form.split('"').next()).unwrap_or_default();
        let form = format!("who={who}&since={since}&csrf={csrf}");
        assert_eq!(visitor.post(&format!("{path}/steps"), &form).await.location, path);
    }
    let page = visitor.get(&path).await;
    (path, page)
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_plays_without_javascript() {
    let shop = Shop::start(1).await;
    let visitor = Visitor::new(&shop);
    let choice = visitor.get("/lab/scheduler").await;
    assert!(choice.words().contains("1. Sell one unit twice"), "{}", choice.words());
    let (path, page) = play(&visitor, "oversell", "ABAABB").await;
    let words = page.words();
    for shown in
        ["Goal reached in 6 steps", "★★★", "1 unit sold twice", "B: write and commit ★ goal"]
    {
        assert!(words.contains(shown), "{shown}: {words}");
    }
    assert_eq!(page.text.matches("<li class=\"reached\">").count(), 1);
    assert_eq!(duplicate_ids(&page), [""; 0]);
    let seqs: Vec<i64> = page
        .text
        .split("class=\"seq\">#")
        .skip(1)
        .map(|rest| rest.split('<').next().unwrap().parse().unwrap())
        .collect();
    assert!(seqs.len() == 3 && seqs.is_sorted_by(|one, other| one > other), "{seqs:?}");

    // Whoever has lost the lock is not told.
    let words = play(&visitor, "useless-lock", "AAXB").await.1.words();
    for shown in ["Order A believes it has the lock", "Order B has the lock"] {
        assert!(words.contains(shown), "{shown}: {words}");
    }

    // The same steps where each write requires the version that was read.
    let words = play(&visitor, "version", "ABAABBB").await.1.words();
    for shown in [
        "Goal reached in 6 steps",
        "B: write and commit → rejected: the row has another version; it reads again, and stock is 0",
        "-- nothing in stock: sold out",
        "B: find it sold out",
    ] {
        assert!(words.contains(shown), "{shown}: {words}");
    }

    // Steps behind the goal do not change the number of steps in which it was reached.
    let undone = visitor.post(&format!("{path}/steps"), "who=undo").await;
    assert_ne!(undone.location, path);
    assert_eq!(visitor.get(&path).await.status, 404);
    let words = visitor.get(&undone.location).await.words();
    assert!(words.contains("5 steps taken"), "{words}");
    // A rejected step is explained on the page of the game.
    let path = undone.location;
    loop {
        let page = visitor.get(&path).await;
        let Some((form, _)) = page.text.split_once("id=\"step-") else { break };
        let since = form.rsplit("name=\"since\" value=\"").next().unwrap();
        let since = since.split('"').next().unwrap();
        let who = &page.text[form.len() + "id=\"step-".len()..][..1];
        visitor.post(&format!("{path}/steps"), &format!("who={who}&since={since}")).await;
    }
    let rejected = visitor.post(&format!("{path}/steps"), "who=expire").await;
    assert_eq!(rejected.status, 409);
    assert!(rejected.words().contains("there are no more steps"), "{}", rejected.words());
    assert!(rejected.text.contains("id=\"game\""));
    let foreign = visitor.form_request("/lab/scheduler", "level=fence");
    let foreign = foreign.header("Sec-Fetch-Site", "cross-site").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_games_are_listed_continued_and_ended() {
    let shop = Shop::start(1).await;
    let visitor = Visitor::new(&shop);
    let begin = async |visitor: &Visitor, form: &str| visitor.post("/lab/scheduler", form).await;
    let mut games = Vec::new();
    for _ in 0..4 {
        games.push(begin(&visitor, "level=oversell").await.location);
    }
    let full = begin(&visitor, "level=fence").await;
    assert_eq!(full.status, 409);
    assert!(full.words().contains("4 games of yours are open: continue one"), "{}", full.words());
    for game in &games {
        assert!(full.text.contains(&format!("href=\"{game}\">Continue</a>")), "{}", full.text);
    }
    assert_eq!(duplicate_ids(&full), [""; 0]);

    let ended = visitor.post(&format!("{}/end", games[0]), "").await;
    assert_eq!((ended.status.as_u16(), ended.location.as_str()), (303, "/lab/scheduler"));
    assert_eq!(visitor.get(&games[0]).await.status, 404);
    let list = visitor.get("/lab/scheduler").await;
    assert_eq!(list.text.matches(">Continue</a>").count(), 3, "{}", list.text);
    assert_eq!(begin(&visitor, "level=fence").await.status, 303);
    let other = Visitor::new(&shop);
    assert!(!other.get("/lab/scheduler").await.text.contains(">Continue</a>"));

    for _ in 0..3 {
        assert_eq!(begin(&other, "strategy=row-lock").await.status, 303);
    }
    let full = begin(&other, "strategy=row-lock").await;
    let words = full.words();
    assert!(full.status == 409 && words.contains("choose another lock"), "{words}");
    assert_eq!(begin(&other, "strategy=none").await.status, 303);

    // A signed-in player's stars are kept with the other results.
    let alice = Visitor::signed_in(&shop, "alice").await;
    play(&alice, "oversell", "ABAABB").await;
    let stars = "select stars::bigint from lab_progress where activity = 'level-oversell'";
    assert_eq!(shop.number(stars).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduler_requires_lab_mode_and_local_visitor() {
    let mut shop = Shop::start(1).await;
    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    let visitor = Visitor::new(&shop);
    let off = Visitor { base: shop.replicas[1].base_url.clone(), http: visitor.http.clone() };
    assert_eq!(off.get("/lab/scheduler").await.status, 403);
    assert_eq!(off.post("/lab/scheduler", "level=oversell").await.status, 403);
    // A request through a proxy comes from another machine.
    let proxied = visitor.form_request("/lab/scheduler", "level=oversell");
    let proxied = proxied.header("X-Forwarded-For", "192.0.2.7").send().await.unwrap();
    assert_ne!(
        proxied.headers()["location"].to_str().unwrap().split('/').nth(2),
        Some("scheduler")
    );
    assert_eq!(shop.number("select count(*) from items where kind = 'lab'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_are_played_by_keyboard_on_one_page() {
    let shop = Shop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/lab/scheduler").await;
    browser.click("button[value=fence]").await;
    browser.until_text("h1", "Use the fence").await;
    let screen = json!({ "width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": false });
    browser.devtools("Emulation.setDeviceMetricsOverride", screen).await;
    for button in ["#step-A", "#step-B"] {
        let bottom = bottom_of(&browser, button).await;
        assert!(bottom < 600.0, "{button} ends at {bottom}");
    }
    // A page load would lose it.
    browser.driver.execute("window.mark = 'kept'", vec![]).await.unwrap();
    let press = async |keys: &str, taken: usize| {
        for (at, key) in keys.char_indices() {
            // An order that waits for the lock has no button until it gets it.
            let button = if key == 'x' { "expire".to_owned() } else { format!("step-{key}") };
            let button = button.replace("-a", "-A").replace("-b", "-B");
            browser.find(&format!("#{button}")).await;
            browser.find("#game").await.send_keys(key.to_string()).await.unwrap();
            browser.until_text("#goal-title", &format!("{} step", taken + at + 1)).await;
        }
    };
    press("aab", 0).await;
    browser.until_text(".result.waiting", "Waiting for the lock.").await;
    browser.until_text("#game article .chip", "has the lock").await;
    let first = browser.until_path("/lab/scheduler/").await;
    browser.find("#game").await.send_keys("u").await.unwrap();
    browser.until_text("#goal-title", "2 steps taken").await;
    assert_ne!(browser.until_path("/lab/scheduler/").await, first);
    press("xbbbbaaa", 2).await;
    browser.until_text("#goal-title", "Goal reached in 10 steps").await;
    browser.until_text(".result", "stale write rejected").await;
    let mark = browser.driver.execute("return window.mark", vec![]).await.unwrap();
    assert_eq!(mark.json().as_str(), Some("kept"));

    let screen = json!({ "width": 320, "height": 640, "deviceScaleFactor": 1, "mobile": false });
    browser.devtools("Emulation.setDeviceMetricsOverride", screen).await;
    let width = "return document.documentElement.scrollWidth";
    let width = browser.driver.execute(width, vec![]).await.unwrap();
    assert!(width.json().as_i64().unwrap() <= 320, "it is {} wide", width.json());
    browser.go("/lab/scheduler").await;
    browser.until_text("[data-stars-of=fence] .stars", "★★★").await;
    browser.until_text("[data-stars-of=oversell] .stars", "☆☆☆").await;
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());

    browser.click("button[value=fence]").await;
    browser.until_text("#goal-title", "Choose who goes first").await;
    press("ab", 0).await;
    let first = browser.until_path("/lab/scheduler/").await;
    // The game of the undo cannot create its item.
    let mut blocker = shop.pool.begin().await.unwrap();
    sqlx::query("lock table items in share mode").execute(&mut *blocker).await.unwrap();
    browser.find("#game").await.send_keys("u").await.unwrap();
    browser.until_text("#game .notice", "The undo failed").await;
    browser.until_text("#goal-title", "2 steps taken").await;
    assert_eq!(browser.until_path("/lab/scheduler/").await, first);
    blocker.rollback().await.unwrap();
    press("a", 2).await;
    browser.close().await;
}
