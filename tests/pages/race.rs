//! The race on the first page: in a browser with a clock, without scripts, and its permanent page.

use holdfast_testkit::{TestShop, until};
use serde_json::json;
use thirtyfour::prelude::*;

use crate::browser::Browser;
use crate::visitor::{Page, Visitor};

async fn words(browser: &Browser, css: &str) -> usize {
    let text = browser.find(css).await.text().await.unwrap();
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_click_shows_oversell() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/").await;
    browser.click("#race-go").await;
    browser.until_text("#race-verdict", "2 sold · 1 existed").await;
    browser.until_text("#race-caption", "a lost update").await;
    assert!(words(&browser, "#race-result").await <= 40);
    assert!(browser.find("#race-verdict.loss").await.is_displayed().await.unwrap());
    browser.until_text("#race-left", "0").await;
    for phone in ["#race-phone-a", "#race-phone-b"] {
        browser.until_text(phone, "Sold to you").await;
    }
    browser.until_text("#race-proof", "These were real transactions on two servers.").await;
    browser.until_text("#race-hint-on", "Now switch the lock on").await;

    // With motion, too, the race can be played again, and in steps.
    browser.click("#race-replay").await;
    browser.until_text("#race-caption", "orders.").await;
    browser.until_text("#race-verdict", "2 sold · 1 existed").await;
    browser.click("#race-step").await;
    browser.until_text("#race-caption", "A orders.").await;
    for _ in 0..20 {
        browser.click("#race-step").await;
        if is_visible(&browser, "#race-verdict").await {
            break;
        }
    }
    browser.until_text("#race-verdict", "2 sold · 1 existed").await;

    // A switch plays at once.
    browser.click("#race-on").await;
    assert!(!is_shown(&browser, "#race-hint-on").await && !is_shown(&browser, "#race-step").await);
    assert!(!is_shown(&browser, "#race-proof").await, "it was about the last race");
    browser.until_text("#race-verdict", "1 sold · 1 existed").await;
    browser.until_text("#race-phone-b", "Sold out").await;
    race_until_explained(&browser, "The lock made B wait").await;
    assert!(browser.driver.find(By::Css("#race-verdict.loss")).await.is_err());
    assert!(!is_shown(&browser, "#race-hint-on").await);

    browser.click("#race-entries").await;
    browser.until_path("/race/").await;
    browser.until_text("h1", "1 sold · 1 existed").await;
    assert!(browser.console_errors().await.is_empty());
    browser.close().await;
    assert_eq!(shop.number("select count(*) from lab_runs").await, 2);
    shop.assert_sound().await;
}

/// Returns which switches are on.
async fn switches(browser: &Browser) -> Vec<String> {
    let on = "return [...document.querySelectorAll('.race-switch :checked')].map((it) => it.name)";
    browser.driver.execute(on, vec![]).await.unwrap().convert().unwrap()
}

/// Lock off, lock on, its holder paused, the fence on: each is a race of its own, by a switch.
#[tokio::test(flavor = "multi_thread")]
async fn switches_tell_the_story() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.prefer("prefers-reduced-motion", "reduce").await;
    browser.resize(360, 740).await;
    browser.go("/").await;
    browser.until_text(".race-lead", "a web shop that never oversells").await;
    browser.click("#race-go").await;

    for (verdict, caption, drawn, switch) in [
        ("2 sold", "a lost update", ".write", "on"),
        ("1 sold", "The lock made B wait", ".activity.waiting", "pause"),
        ("2 sold", "a lost update with the lock on", ".mark.expired", "fence"),
        ("1 sold", "Postgres refused A’s late write", ".mark.refused", ""),
    ] {
        race_until_explained(&browser, caption).await;
        browser.until_text("#race-verdict", &format!("{verdict} · 1 existed")).await;
        let drawn = format!("#race-drawing {drawn}");
        assert!(browser.driver.find(By::Css(&drawn)).await.is_ok(), "{drawn}");
        until(&format!("the result is on the screen: {caption}"), async || {
            is_visible(&browser, "#race-verdict").await
                && is_visible(&browser, "#race-caption").await
                && is_visible(&browser, "#race-phone-b").await
        })
        .await;

        // It is said once, with the switch that comes next.
        let live = "return document.querySelector('#race-live').textContent";
        let live = browser.driver.execute(live, vec![]).await.unwrap();
        let live = live.json().as_str().unwrap().to_owned();
        assert!(live.starts_with(verdict) && live.contains(caption), "{live}");
        if switch.is_empty() {
            break;
        }
        let hint = browser.find(&format!("#race-hint-{switch}")).await.text().await.unwrap();
        assert!(hint.starts_with("Now") && live.ends_with(&hint), "{hint} {live}");
        browser.find(&format!("#race-{switch}")).await.send_keys(" ").await.unwrap();
    }
    assert_eq!(switches(&browser).await, ["on", "pause", "fence"]);
    assert_eq!(shop.number("select count(*) from lab_runs").await, 4);

    // A pause is of two buyers, and without the lock there is neither.
    let slider = browser.find("#race-buyers").await;
    slider.send_keys(Key::Right + "").await.unwrap();
    assert_eq!(switches(&browser).await, ["on", "fence"]);
    browser.click("#race-pause").await;
    browser.until_text("#race-crowd-size", "2 buyers, 1 unit").await;
    browser.click("#race-on").await;
    assert!(switches(&browser).await.is_empty());
    browser.until_text("#race-verdict", "2 sold · 1 existed").await;

    browser.click(".race-ways a").await;
    browser.until_text("h1", "The lost update").await;
    browser.go("/").await;
    let own = browser.driver.find(By::LinkText("Does your own shop oversell?")).await.unwrap();
    assert!(own.attr("href").await.unwrap().unwrap().ends_with("/lab/judged#services"));
    browser.close().await;
}

/// Returns where an element ends, in pixels from the top of the page.
pub async fn bottom_of(browser: &Browser, css: &str) -> f64 {
    let script = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom
        + scrollY";
    let bottom = browser.driver.execute(script, vec![json!(css)]).await.unwrap();
    bottom.json().as_f64().unwrap()
}

/// Returns whether an element is shown, on the screen or beyond it.
async fn is_shown(browser: &Browser, css: &str) -> bool {
    browser.find(css).await.is_displayed().await.unwrap()
}

/// Returns whether the whole element is on the screen.
async fn is_visible(browser: &Browser, css: &str) -> bool {
    let script = "const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight";
    browser.driver.execute(script, vec![json!(css)]).await.unwrap().json() == &json!(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn result_is_on_screen_without_scrolling() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    for (width, height, motion) in
        [(1280, 720, ""), (360, 740, ""), (360, 740, "reduce"), (768, 1024, "")]
    {
        browser.prefer("prefers-reduced-motion", motion).await;
        browser.resize(width, height).await;
        browser.go("/").await;
        let bottom = bottom_of(&browser, "#race-go").await;
        assert!(bottom < 560.0, "the button ends at {bottom} of {width} × {height}");
        browser.click("#race-go").await;
        browser.until_text("#race-verdict", "2 sold · 1 existed").await;
        until(&format!("the result is on the screen of {width} × {height}"), async || {
            is_visible(&browser, "#race-verdict").await
                && is_visible(&browser, "#race-caption").await
                && is_visible(&browser, "#race-phone-b").await
        })
        .await;
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chosen_lock_is_on_and_explained() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/").await;
    browser.click(".race-locks summary").await;
    // The one that is chosen already turns the switch on, too.
    browser.click("[value='owner']").await;
    browser.until_text("#race-caption", "Lock on: a server holds the lock").await;
    browser.click("[value='local']").await;
    browser.until_text("#race-caption", "Lock on: each server has its own mutex").await;
    browser.click("#race-go").await;
    browser.until_text("#race-verdict", "2 sold · 1 existed").await;
    browser.until_text("#race-caption", "that of one does not stop the other. Both orders").await;
    assert!(!is_shown(&browser, "#race-hint-on").await, "the switch is on");

    let step_through = "return Array.from({ length: 30 }, () => {
        document.querySelector('#race-step').click();
        return document.querySelector('#race-caption').textContent;
    })";
    let captions = browser.driver.execute(step_through, vec![]).await.unwrap();
    let captions: Vec<String> = captions.convert().unwrap();
    for buyer in ["A", "B"] {
        for does in ["gets the lock.", "releases the lock."] {
            let expected = format!("{buyer} {does}");
            assert!(captions.contains(&expected), "{expected} {captions:?}");
        }
    }
    browser.close().await;
}

/// What a race says of a busy machine: some of 200 orders got no answer within its time, or one of
/// two orders came so late that it did not have to wait.
const BUSY: [&str; 2] = ["got no answer", "came after"];
/// Races until a test fails, if each says so.
const RACES: usize = 5;

/// Waits until a race is explained with `caption`; runs it again while it says that the machine is
/// busy.
async fn race_until_explained(browser: &Browser, caption: &str) {
    let shown = async || browser.find("#race-caption").await.text().await.unwrap();
    for _ in 0..RACES {
        until(&format!("the race is explained: {caption}"), async || {
            let shown = shown().await;
            shown.contains(caption) || BUSY.iter().any(|busy| shown.contains(busy))
        })
        .await;
        if shown().await.contains(caption) {
            return;
        }
        browser.click("#race-go").await;
    }
    panic!("{RACES} races on a busy machine, and none showed: {caption}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slider_sets_the_number_of_buyers() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/").await;
    let slider = browser.find("#race-buyers").await;
    slider.send_keys(Key::Right + "").await.unwrap();
    browser.until_text("#race-question", "4 people buy 2 units. Who gets one?").await;
    browser.until_text("#race-crowd-size", "4 buyers, 2 units").await;
    slider.send_keys(Key::End + "").await.unwrap();
    browser.until_text("#race-go", "Buy all 200").await;
    let watch = "window.seen = [];
        const verdict = document.querySelector('#race-verdict');
        const note = () => verdict.textContent && seen.push(
            [parseInt(verdict.textContent), verdict.classList.contains('loss')]);
        new MutationObserver(note).observe(verdict, { childList: true, attributes: true });";
    browser.driver.execute(watch, vec![]).await.unwrap();
    browser.click("#race-go").await;
    race_until_explained(&browser, "red receipts").await;
    browser.until_text("#race-verdict", "sold · 100 existed").await;
    browser.until_text("#race-entries", "See two of the ledger entries").await;
    let seen = browser.driver.execute("return seen", vec![]).await.unwrap();
    let seen: Vec<(i64, bool)> = seen.convert().unwrap();
    // Neutral while no more is sold than existed.
    let wrong: Vec<_> = seen.iter().filter(|(sold, is_loss)| *is_loss != (*sold > 100)).collect();
    assert!(wrong.is_empty() && seen.iter().any(|(sold, _)| *sold < 100), "{wrong:?} of {seen:?}");
    assert!(!browser.driver.find_all(By::Css("#race-crowd .doubled")).await.unwrap().is_empty());
    browser.click("#race-on").await;
    race_until_explained(&browser, "Each unit was sold once").await;
    browser.until_text("#race-verdict", "100 sold · 100 existed").await;
    browser.until_text("#race-proof-text", "(fenced)").await;
    browser.resize(360, 740).await;
    let size = "const root = document.documentElement;
        const cells = [...document.querySelectorAll('#race-crowd i')].map((i) => i.offsetHeight);
        // As large as where its animation begins.
        const verdict = document.querySelector('#race-verdict');
        verdict.style.cssText = 'animation: none; transform: scale(2.2)';
        return [root.scrollWidth <= innerWidth, Math.max(...cells) - Math.min(...cells) <= 1]";
    let size = browser.driver.execute(size, vec![]).await.unwrap();
    assert_eq!(size.json(), &json!([true, true]), "the page fits, and the cells have one size");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reduced_motion_shows_end_and_steps() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.prefer("prefers-reduced-motion", "reduce").await;
    browser.go("/").await;
    // Half a second is the poll for a race that waits for others.
    let count_pauses = "const set = window.setTimeout;
        window.pauses = 0;
        window.setTimeout = (callback, ms) => {
          window.pauses += ms > 0 && ms !== 500;
          return set(callback, ms);
        };";
    browser.driver.execute(count_pauses, vec![]).await.unwrap();
    browser.click("#race-go").await;
    browser.until_text("#race-verdict", "2 sold · 1 existed").await;
    let pauses = browser.driver.execute("return window.pauses", vec![]).await.unwrap();
    assert_eq!(pauses.json(), &json!(0), "the race is played");
    browser.click("#race-step").await;
    browser.until_text("#race-caption", "A orders.").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_works_without_javascript() {
    let shop = TestShop::with_peers(&[]).await;
    let browser = Browser::open(&shop.replicas[0].base_url, false).await;
    browser.go("/").await;
    browser.until_text(".race-recorded", "A reads 1 while B waits").await;
    assert_eq!(browser.driver.find_all(By::Css(".race-recorded svg")).await.unwrap().len(), 2);
    browser.click("#race-go").await;
    browser.until_path("/race/").await;
    browser.until_text("h1", "2 sold · 1 existed").await;
    browser.until_text(".race-entries", "read 1 → wrote 0").await;
    browser.until_text("#ledger", "Both entries read version 1").await;
    browser.close().await;
}

/// The preview of a link to the page is an asset, of the size that the page says.
async fn assert_preview(visitor: &Visitor, page: &Page, name: &str, text: &str) {
    let start = format!("<meta property=\"og:image\" content=\"{}/static/{name}", visitor.base);
    assert!(page.text.contains(&start), "{start}: {}", page.text);
    let alt = format!("<meta property=\"og:image:alt\" content=\"{text}");
    assert!(page.text.contains(&alt), "{alt}: {}", page.text);

    let address = page.text.split("og:image\" content=\"").nth(1).unwrap();
    let image = visitor.http.get(address.split('"').next().unwrap()).send().await.unwrap();
    assert_eq!(image.headers()["content-type"], "image/png");
    assert!(image.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    let image = image.bytes().await.unwrap();
    assert_eq!(image[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(image[16..24], [0, 0, 4, 176, 0, 0, 2, 118], "1200 × 630");
}

#[tokio::test(flavor = "multi_thread")]
async fn race_page_has_title_and_preview_image() {
    let shop = TestShop::with_peers(&[]).await;
    let visitor = Visitor::new(&shop);
    let race = visitor.post("/race", "on=on&lock=row-lock&buyers=2").await;
    assert_eq!(race.status, 303, "{}", race.text);
    let page = visitor.get(&race.location).await;
    assert!(page.text.contains("<title>1 sold · 1 existed"), "{}", page.text);
    assert_preview(&visitor, &page, "race-preview-once-en.png", "No unit sold twice.").await;
    let page = visitor.get_in("zh", &race.location).await;
    assert_preview(&visitor, &page, "race-preview-once-zh.png", "没有一件商品卖出两次。").await;
    let picture = visitor.get(&format!("{}/picture.svg", race.location)).await;
    assert_eq!(picture.kind, "image/svg+xml");
    assert!(picture.text.contains("1 sold · 1 existed") && picture.text.contains("<animate "));
    let first = visitor.get("/").await;
    assert_preview(&visitor, &first, "race-preview-twice-en.png", "One unit, two receipts.").await;

    // The switch of the fence needs no other one; a pause is told by the page, too.
    let fenced = visitor.post("/race", "fence=on&pause=on&buyers=2").await;
    let fenced = visitor.get(&fenced.location).await;
    let words = fenced.words();
    assert!(words.contains("Postgres refused A’s late write"), "{words}");
    assert!(fenced.text.contains("class=\"mark expired\""), "{}", fenced.text);

    let lost = visitor.post("/race", "buyers=2").await;
    let lost = visitor.get_in("zh", &lost.location).await;
    assert_preview(&visitor, &lost, "race-preview-twice-zh.png", "一件商品，两张售出凭证。").await;

    let forged = visitor.page_request(&race.location).header("X-Forwarded-Host", "evil.example");
    let forged = Page::read(forged.send().await.unwrap()).await;
    assert!(!forged.text.contains("evil.example"), "{}", forged.text);
    assert_eq!(visitor.get("/race/none").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_play_on_their_own() {
    let shop = TestShop::with_peers(&[]).await;
    let visitor = Visitor::new(&shop);
    let race = visitor.post("/race", "buyers=2").await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go(&format!("{}/picture.svg", race.location)).await;
    let family = "return getComputedStyle(document.documentElement).fontFamily";
    let family = browser.driver.execute(family, vec![]).await.unwrap();
    assert!(family.json().as_str().unwrap().contains("Inter"), "{}", family.json());

    // The file of a race needs no server: the shop has ended by then.
    let file = visitor.get_in("zh", &format!("{}/file", race.location)).await;
    drop(shop);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("race.html");
    std::fs::write(&path, &file.text).unwrap();
    browser.driver.goto(format!("file://{}", path.display())).await.unwrap();
    browser.until_text("h1", "两个人同时买最后一件").await;
    browser.until_text(".race-film", "卖出 2 · 实有 1").await;
    browser.until_text(".race-entries.fork", "读到 1 → 写入 0").await;
    let plays = "const picture = document.querySelector('.race-film svg');
        const style = getComputedStyle(picture.querySelector('.paper')).fill;
        return [picture.animationsPaused(), picture.getCurrentTime() > 0, style]";
    let plays = browser.driver.execute(plays, vec![]).await.unwrap();
    assert_eq!(plays.json(), &json!([false, true, "rgb(255, 255, 255)"]));
    assert!(browser.console_errors().await.is_empty());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_page_is_small_and_sign_in_offers_demo_user() {
    let mut shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let page = visitor.get("/").await;
    let mut bytes = page.text.len();
    for (at, _) in page.text.match_indices("/static/") {
        let address = page.text[at..].split('"').next().unwrap();
        // Fonts come later, and the preview is for the programs that show a link.
        if address.ends_with(".woff2") || address.contains("/race-preview-") {
            continue;
        }
        let asset = visitor.http.get(format!("{}{address}", visitor.base)).send().await.unwrap();
        bytes += asset.bytes().await.unwrap().len();
    }
    assert!(bytes < 100_000, "{bytes} bytes");
    let sign_in = visitor.get("/sign-in?next=/orders").await.text;
    assert!(sign_in.contains("Continue as alice"), "{sign_in}");
    let demo_form = sign_in.split("demo-sign-in").nth(1).expect("the demo sign-in");
    assert!(demo_form.contains("name=\"next\" value=\"/orders\""), "{demo_form}");
    // Nor where an admin is needed: the pages that those of the administration link to.
    let tabs = Visitor::signed_in(&shop, "admin").await.get("/admin").await.text;
    let tabs = tabs.split("class=\"item-tabs\"").nth(1).unwrap().split("</nav>").next().unwrap();
    let mut pages: Vec<&str> =
        tabs.split("href=\"").skip(1).map(|link| link.split('"').next().unwrap()).collect();
    assert!(pages.len() >= 5, "{pages:?}");
    pages.extend([
        "/locks",
        "/jobs",
        "/admin/items/deadbolt",
        "/admin/orders?status=paid",
        "/lab/class",
    ]);
    for page in pages {
        let sign_in = visitor.get(&format!("/sign-in?next={page}")).await.text;
        assert!(!sign_in.contains("Continue as"), "{page}");
    }
    let form = "user=alice&password=alice&next=/shop";
    assert_eq!(visitor.post("/sign-in", form).await.location, "/shop");

    sqlx::query("update users set disabled_at = now()").execute(&shop.pool).await.unwrap();
    shop.add_replica(&[]);
    let other = Visitor { http: reqwest::Client::new(), base: shop.replicas[1].base_url.clone() };
    assert!(!other.get("/sign-in").await.text.contains("Continue as"));

    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    let off = Visitor { http: visitor.http, base: shop.replicas[2].base_url.clone() };
    let shop_page: Page = off.get("/").await;
    assert!(shop_page.text.contains("id=\"item-deadbolt\"") && !shop_page.text.contains("race-go"));

    // Which lock one needs is told without a lab, too.
    let on = other.get("/which-lock?processes=one").await;
    assert!(on.words().contains("A mutex in the process."), "{}", on.words());
    assert!(on.text.contains("/lab/lessons/one-replica") && on.text.contains("/lab/judged/flock"));
    let off = off.get("/which-lock?processes=one&money=%00").await;
    assert!(off.words().contains("A mutex in the process.") && !off.text.contains("/lab/"));
}
