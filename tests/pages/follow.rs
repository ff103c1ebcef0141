//! The phones of a class follow its projector, and never away from what a student has begun.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::axe_core::{axe, violations};
use crate::browser::Browser;
use crate::class::{LESSON, SHOW, class_shop, code, show_result};
use crate::join::joined;
use crate::stability::shifts;
use crate::visitor::{Page, Visitor};

const FENCE: &str = "/lab/lessons/fence";

/// Returns the page where the teacher is, as a student's page links it.
async fn teacher_page(student: &Visitor) -> String {
    let page = student.get("/shop").await.text;
    let (_, rest) = page.split_once("id=\"teacher\"").unwrap();
    let link = rest.split("</p>").next().unwrap().split("href=\"").nth(1);
    link.map_or("", |link| link.split('"').next().unwrap()).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_projector_leads_and_only_to_pages_of_the_lab() {
    let shop = class_shop().await;
    let code = code(&shop).await;
    let (one, other) = (Visitor::new(&shop), Visitor::new(&shop));
    let mia = joined(&shop, &code, "Mia").await;
    assert_eq!(teacher_page(&mia).await, "");

    let race = one.post("/race", "").await.location;
    let [no_run, no_race] = ["/lab/runs", "/race"].map(|page| format!("{page}/{}", Uuid::now_v7()));
    for (teacher, opened, led) in [
        (&one, LESSON, LESSON),
        (&other, FENCE, FENCE),
        // The first one's page refreshes itself, and stays.
        (&one, "/lab/lessons/lost-update/votes", FENCE),
        (&one, "/bar", FENCE),
        (&one, "/lab", "/lab"),
        (&other, "/lab/exercise", "/lab"),
        (&other, "/lab/lessons/none", "/lab"),
        (&other, "/lab/runs/1", "/lab"),
        (&other, no_run.as_str(), "/lab"),
        (&other, no_race.as_str(), "/lab"),
        (&other, "/shop", "/lab"),
        (&one, "/", "/"),
    ] {
        let page = teacher.get(&format!("{opened}?present")).await;
        assert!(!page.text.contains("id=\"teacher\""), "{opened}: a teacher follows nobody");
        assert_eq!(teacher_page(&mia).await, led, "{opened}");
    }
    // Neither does what another site embeds, or what is loaded before anybody wants it.
    for (path, name, value) in [
        (FENCE, "Sec-Fetch-Dest", "image"),
        (FENCE, "Sec-Fetch-Dest", "iframe"),
        (FENCE, "Sec-Purpose", "prefetch;prerender"),
        ("/bar", "Sec-Fetch-Site", "cross-site"),
    ] {
        let request = one.page_request(&format!("{path}?present&race={}", &race[6..]));
        assert_eq!(request.header(name, value).send().await.unwrap().status(), 200);
        assert_eq!(teacher_page(&mia).await, "/", "{name}: {value}");
    }
    for (played, led) in [
        ("/evil.example", "/"),
        ("../shop", "/"),
        (&no_race[6..], "/"),
        (&race[6..], race.as_str()),
    ] {
        one.get(&format!("/bar?present&race={played}")).await;
        assert_eq!(teacher_page(&mia).await, led, "{played}");
    }

    // A page that is not presented leads nobody, nor does a student, or who has not joined.
    one.get(LESSON).await;
    let first = one.get("/").await;
    assert!(first.text.contains("<a href=\"/?present\">Present</a>"), "{}", first.text);
    assert!(!mia.get("/").await.text.contains("?present"));
    let page = mia.get(&format!("{LESSON}?present")).await;
    assert!(!page.text.contains("present.css") && !page.text.contains("?present"), "{}", page.text);
    let stranger = one.page_request(&format!("{LESSON}?present"));
    let page = Page::read(stranger.header("X-Forwarded-For", "192.0.2.1").send().await.unwrap());
    assert!(!page.await.text.contains("?present"));
    assert_eq!(teacher_page(&mia).await, race);

    // The page itself has no link to itself.
    one.get(&format!("{LESSON}?present")).await;
    for here in [mia.get(LESSON).await, mia.get(&format!("{LESSON}/votes")).await] {
        assert!(here.words().contains("You are where the teacher is"), "{}", here.words());
    }
    holdfast_lab::class::reset(&shop.pool.clone().into()).await.unwrap();
    let here = mia.get(LESSON).await;
    assert!(here.words().contains("The teacher shows nothing yet"), "{}", here.words());
}

/// Returns the page that the phone has followed last.
async fn followed(phone: &Browser) -> Value {
    let page = "return sessionStorage.getItem('followed')";
    phone.driver.execute(page, vec![]).await.unwrap().json().clone()
}

async fn set_offline(browser: &Browser, is_offline: bool) {
    let network = json!({ "offline": is_offline, "latency": 0,
        "downloadThroughput": -1, "uploadThroughput": -1 });
    browser.devtools("Network.enable", json!({})).await;
    browser.devtools("Network.emulateNetworkConditions", network).await;
}

/// What a phone shows that is not where its teacher is.
const ELSEWHERE: &str = "Go where the teacher is";

/// Hides the page, as in a pocket, or shows it again.
async fn set_hidden(phone: &Browser, is_hidden: bool) {
    let hide = "Object.defineProperty(document, 'hidden', { configurable: true, value: true })";
    let look = "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))";
    let script = if is_hidden { hide } else { look };
    phone.driver.execute(script, vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn phone_follows_the_projector() {
    let shop = class_shop().await;
    let run = show_result(&shop, "lost-update").await;
    shop.execute("update lab_runs set from_file = false").await;
    let projector = Browser::open(&shop.replicas[0].base_url, true).await;
    let phone = projector.beside().await;
    phone.resize(390, 844).await;
    phone.go(&format!("/join/{}", code(&shop).await)).await;
    phone.fill("#nickname", "Mia").await;
    phone.click("form.stack button").await;
    phone.until_text("#teacher", "The teacher shows nothing yet").await;
    let show = async |page: &str| projector.go(&format!("{page}?present")).await;

    show(LESSON).await;
    phone.until_text("#teacher", ELSEWHERE).await;
    phone.driver.execute(&*axe(), vec![]).await.unwrap();
    assert_eq!(violations(&phone, json!({})).await, [""; 0]);
    assert_eq!(phone.until_path("/lab").await, "/lab", "it does not follow unasked");
    let shift = shifts(&phone).await;
    assert!((0.0..0.01).contains(&shift), "{shift}");
    phone.click("#teacher a").await;
    phone.until_path(LESSON).await;
    phone.until_text("#teacher", "You are where the teacher is").await;

    // Not over an answer that is chosen; once it is sent, the phone catches up.
    phone.click("input[value='2']").await;
    show(FENCE).await;
    phone.until_text("#teacher", ELSEWHERE).await;
    assert_eq!(followed(&phone).await, LESSON);
    phone.click(".buttons .main").await;
    phone.until_path(FENCE).await;
    assert_eq!(shop.number("select count(*) from lab_progress where guess = 2").await, 1);

    // Nor over a note.
    let path = run.trim_end_matches("?present");
    show(path).await;
    phone.until_path(path).await;
    phone.fill("#note", "Two orders read 57.").await;
    show(FENCE).await;
    phone.until_text("#teacher", ELSEWHERE).await;
    assert_eq!(followed(&phone).await, path);
    phone.click("#hand-in button").await;
    phone.until_path(FENCE).await;
    assert_eq!(shop.number("select count(*) from lab_progress where note is not null").await, 1);

    // Without a network for a while.
    set_offline(&phone, true).await;
    phone.until_text("#books", "books last checked at").await;
    show(LESSON).await;
    assert_eq!(phone.until_path("/lab").await, FENCE);
    set_offline(&phone, false).await;
    phone.until_path(LESSON).await;

    // In a pocket for a while: it asks for nothing, and at once when it is looked at.
    set_hidden(&phone, true).await;
    show(FENCE).await;
    assert_eq!(phone.until_path("/lab").await, LESSON);
    set_hidden(&phone, false).await;
    phone.until_path(FENCE).await;

    // Who goes elsewhere, or does not want to follow, stays there.
    phone.go("/shop").await;
    phone.until_text("#teacher", ELSEWHERE).await;
    assert_eq!(phone.until_path("/shop").await, "/shop");
    phone.click("#follow").await;
    show(LESSON).await;
    phone.go(FENCE).await;
    phone.until_text("#teacher", ELSEWHERE).await;
    assert_eq!(followed(&phone).await, Value::Null);
    phone.click("#follow").await;
    phone.until_path(LESSON).await;

    // The votes appear in their place.
    phone.until_text(".guesses .number", "?").await;
    Visitor::new(&shop).post(SHOW, "").await;
    phone.until_text(".guesses .own .number", "1").await;
    let shift = shifts(&phone).await;
    assert!((0.0..0.01).contains(&shift), "{shift}");

    // To the race, and to the page of the one that was played.
    show("/").await;
    phone.find("#race-go").await;
    projector.click("#race-go").await;
    phone.until_path("/race/").await;
    phone.close().await;
    projector.close().await;
}
