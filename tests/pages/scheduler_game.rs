//! The game *You are the scheduler*: the states that its script gets, without a session and with
//! one, and its page, by keyboard and touch.

use std::collections::BTreeSet;

use holdfast_testkit::TestShop;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::race::bottom_of;
use crate::visitor::{Page, Visitor};

fn duplicate_ids(page: &Page) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let ids = page.text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    ids.filter(|id| !seen.insert(*id)).map(str::to_owned).collect()
}

/// Sends a form as the page's script does; returns the status and the state of the game.
async fn act(visitor: &Visitor, path: &str, form: &str) -> (u16, Value) {
    let request = visitor.http.post(format!("{}{path}", visitor.base));
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let request = request.header("Accept", "application/json").body(form.to_owned());
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Plays a level; returns the path of the game and its state after the last step.
async fn play(visitor: &Visitor, level: &str, script: &str) -> (String, Value) {
    let csrf = visitor.get("/lab/scheduler").await.csrf();
    let form = format!("level={level}&csrf={csrf}");
    let (status, mut state) = act(visitor, "/lab/scheduler", &form).await;
    assert_eq!(status, 200, "{state}");
    let path = format!("/lab/scheduler/{}", state["id"].as_str().unwrap());
    for step in script.chars() {
        let who = if step == 'X' { "expire".to_owned() } else { step.to_string() };
        let since = state["pauses"][&who].as_u64().map_or_else(String::new, |at| at.to_string());
        let form = format!("who={who}&since={since}&csrf={csrf}");
        let (status, next) = act(visitor, &format!("{path}/steps"), &form).await;
        assert_eq!((status, &next["refusal"]), (200, &Value::Null), "{next}");
        state = next;
    }
    (path, state)
}

#[tokio::test(flavor = "multi_thread")]
async fn script_gets_the_state_after_each_action() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let choice = visitor.get("/lab/scheduler").await;
    assert!(choice.words().contains("1. Sell one unit twice"), "{}", choice.words());
    assert!(choice.words().contains("Without JavaScript you cannot play"), "{}", choice.words());

    let (path, state) = play(&visitor, "oversell", "ABAABB").await;
    assert_eq!((&state["reached_at"], &state["stars"]), (&json!(6), &json!(3)), "{state}");
    assert_eq!((&state["audit"]["sold"], &state["audit"]["oversold"]), (&json!(2), &json!(1)));
    let page = visitor.get(&path).await;
    assert!(page.words().contains("Sell one unit twice There is no lock."), "{}", page.words());
    assert_eq!(duplicate_ids(&page), [""; 0]);

    // A second click on the same button.
    let since = state["pauses"]["A"].as_u64().unwrap();
    let again = format!("who=A&since={since}");
    let (_, stepped) = act(&visitor, &format!("{path}/steps"), &again).await;
    let (_, repeated) = act(&visitor, &format!("{path}/steps"), &again).await;
    assert_eq!((steps(&stepped), steps(&repeated)), (7, 7), "{repeated}");
    let (_, undone) = act(&visitor, &format!("{path}/steps"), "who=undo").await;
    assert_eq!(steps(&undone), 6, "{undone}");
    assert_eq!(visitor.get(&path).await.status, 404, "another game is in its place");

    // Whoever has lost the lock is not told.
    let (_, state) = play(&visitor, "useless-lock", "AAXB").await;
    assert_eq!(
        (&state["orders"][0]["lock"], &state["orders"][1]["lock"]),
        (&json!("lost"), &json!("held"))
    );

    let path = format!("/lab/scheduler/{}", undone["id"].as_str().unwrap());
    let mut state = undone;
    while let Some(order) =
        state["orders"].as_array().unwrap().iter().find(|it| !it["at"].is_null())
    {
        let form = format!("who={}", order["name"].as_str().unwrap());
        state = act(&visitor, &format!("{path}/steps"), &form).await.1;
    }
    let (status, refused) = act(&visitor, &format!("{path}/steps"), "who=expire").await;
    assert_eq!((status, &refused["refusal"]), (409, &json!("over")), "{refused}");
    assert_eq!(refused["steps"], state["steps"]);
    let (status, problem) = act(&visitor, &format!("{path}/steps"), "who=nobody").await;
    assert_eq!(status, 422, "{problem}");
    let foreign = visitor.form_request("/lab/scheduler", "level=fence");
    let foreign = foreign.header("Sec-Fetch-Site", "cross-site").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
}

fn steps(state: &Value) -> usize {
    state["steps"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn open_games_are_listed_continued_and_ended() {
    let shop = TestShop::start(1).await;
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
    let mut shop = TestShop::start(1).await;
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

/// Presses keys in a game after `taken` steps, each once its button is there: an order that waits
/// for the lock has none until it gets it.
async fn press(browser: &Browser, keys: &str, taken: usize) {
    for (at, key) in keys.char_indices() {
        let button = match key {
            'x' => "#expire".to_owned(),
            order => format!("#step-{}", order.to_ascii_uppercase()),
        };
        browser.find(&button).await;
        browser.find("#game").await.send_keys(key.to_string()).await.unwrap();
        let steps = format!(".taken-steps li:nth-child({}):last-child", taken + at + 1);
        browser.find(&steps).await;
    }
}

/// Returns the texts of the elements that match.
async fn texts(browser: &Browser, css: &str) -> Vec<String> {
    let script = "return [...document.querySelectorAll(arguments[0])].map(
                      (it) => it.textContent.replace(/\\s+/g, ' ').trim())";
    browser.driver.execute(script, vec![json!(css)]).await.unwrap().convert().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_steps_books_and_ledger() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/lab/scheduler").await;
    browser.click("button[value=oversell]").await;
    browser.until_text("#goal-title", "Choose who goes first").await;
    press(&browser, "abaabb", 0).await;
    browser.until_text("#goal-title", "Goal reached in 6 steps").await;
    assert_eq!(texts(&browser, "#game .stars").await, ["★★★"]);
    let books = "stock at the start 1 · sold 2 · in stock 0 · 1 unit sold twice";
    browser.until_text(".goal .books", books).await;
    assert_eq!(texts(&browser, ".taken-steps .reached").await, ["B: write and commit ★ goal"]);
    let taken = texts(&browser, ".taken-steps li").await;
    assert_eq!(taken[0], "A: read the stock → stock is 1");
    assert_eq!(texts(&browser, ".chain").await, ["1 −1 → 0", "1 −1 → 0", "0 +1 → 1"]);
    assert_eq!(texts(&browser, ".forked .violation").await.len(), 2);
    let seqs = texts(&browser, ".seq").await;
    let seqs: Vec<i64> = seqs.iter().map(|seq| seq[1..].parse().unwrap()).collect();
    assert!(seqs.is_sorted_by(|one, other| one > other), "{seqs:?}");

    // The same steps where each write requires the version that was read.
    browser.click("#next").await;
    browser.until_text("h1", "Let the version decide").await;
    browser.until_text("#goal-title", "Choose who goes first").await;
    press(&browser, "abaabbb", 0).await;
    let rejected = "write rejected: the row has version 2";
    let taken = texts(&browser, ".taken-steps li").await;
    assert_eq!(
        taken[5],
        format!("B: write and commit → {rejected}; it reads again, and stock is 0 ★ goal")
    );
    assert_eq!(taken[6], "B: find it sold out");
    assert_eq!(texts(&browser, ".rejected").await, [format!("✗ {rejected}")]);
    let code = texts(&browser, "[aria-labelledby=order-B] .code pre").await;
    assert!(code.contains(&"-- nothing in stock: sold out".to_owned()), "{code:?}");

    browser.click("#next").await;
    browser.until_text("h1", "Make the lock useless").await;
    browser.until_text("#goal-title", "Choose who goes first").await;
    press(&browser, "aaxb", 0).await;
    browser.until_text("[aria-labelledby=order-B] .chip", "has the lock").await;
    browser.until_text("[aria-labelledby=order-A] .chip", "believes it has the lock").await;

    // A free game of three starts again as one.
    browser.go("/lab/scheduler").await;
    browser.click(".free summary").await;
    browser.click("[value=row-lock]").await;
    browser.click("[name=orders][value='3']").await;
    browser.click(".free button").await;
    browser.until_text("h1", "Free game").await;
    press(&browser, "ab", 0).await;
    browser.until_text(".result.waiting", "Waiting for Postgres").await;
    browser.find("#game").await.send_keys("r").await.unwrap();
    browser.until_text("#goal-title", "Choose who goes first").await;
    assert_eq!(texts(&browser, ".game-order").await.len(), 3);
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}

/// The game was ended in another tab, and others hold every transaction meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn game_that_has_no_room_says_why() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/lab/scheduler").await;
    browser.click(".free summary").await;
    browser.click("[value=row-lock]").await;
    browser.click(".free button").await;
    browser.until_text("#goal-title", "Choose who goes first").await;
    let game = browser.until_path("/lab/scheduler/").await;

    let other = Visitor::new(&shop);
    assert_eq!(other.post(&format!("{game}/end"), "").await.status, 303);
    for _ in 0..2 {
        let begun = other.post("/lab/scheduler", "strategy=row-lock&orders=3").await;
        assert_eq!(begun.status, 303, "{}", begun.words());
    }

    browser.find("#game").await.send_keys("r").await.unwrap();
    browser.until_text("[role=alert]", "choose another lock").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_are_played_by_keyboard_on_one_page() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/lab/scheduler").await;
    browser.click("button[value=fence]").await;
    browser.until_text("h1", "Use the fence").await;
    browser.resize(1280, 720).await;
    for button in ["#step-A", "#step-B"] {
        let bottom = bottom_of(&browser, button).await;
        assert!(bottom < 600.0, "{button} ends at {bottom}");
    }
    // A page load would lose it.
    browser.driver.execute("window.mark = 'kept'", vec![]).await.unwrap();
    press(&browser, "aab", 0).await;
    browser.until_text(".result.waiting", "Waiting for the lock.").await;
    browser.until_text("#game article .chip", "has the lock").await;
    let first = browser.until_path("/lab/scheduler/").await;
    browser.find("#game").await.send_keys("u").await.unwrap();
    browser.until_text("#goal-title", "2 steps taken").await;
    assert_ne!(browser.until_path("/lab/scheduler/").await, first);
    press(&browser, "xbbbbaaa", 2).await;
    browser.until_text("#goal-title", "Goal reached in 10 steps").await;
    browser.until_text(".result", "stale write rejected").await;
    let mark = browser.driver.execute("return window.mark", vec![]).await.unwrap();
    assert_eq!(mark.json().as_str(), Some("kept"));

    browser.resize(320, 640).await;
    let width = browser.width().await;
    assert!(width <= 320, "it is {width} wide");
    browser.go("/lab/scheduler").await;
    browser.until_text("[data-stars-of=fence] .stars", "★★★").await;
    browser.until_text("[data-stars-of=oversell] .stars", "☆☆☆").await;
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());

    browser.click("button[value=fence]").await;
    browser.until_text("#goal-title", "Choose who goes first").await;
    press(&browser, "ab", 0).await;
    let first = browser.until_path("/lab/scheduler/").await;
    // The game of the undo cannot create its item.
    let mut blocker = shop.pool.begin().await.unwrap();
    sqlx::query("lock table items in share mode").execute(&mut *blocker).await.unwrap();
    browser.find("#game").await.send_keys("u").await.unwrap();
    browser.until_text("#game .notice", "The undo failed").await;
    browser.until_text("#goal-title", "2 steps taken").await;
    assert_eq!(browser.until_path("/lab/scheduler/").await, first);
    blocker.rollback().await.unwrap();
    press(&browser, "a", 2).await;
    browser.close().await;
}
