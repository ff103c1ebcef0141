//! A purchase in a real browser, from the shop page to a refund; double clicks, reload and back.

use holdfast_testkit::{TestShop, until};
use serde_json::json;
use thirtyfour::prelude::*;
use thirtyfour::{ChromeCapabilities, PageLoadStrategy};

use crate::browser::Browser;
use crate::visitor::Visitor;

async fn check_purchase(javascript: bool) {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, javascript).await;
    browser.go("/shop").await;
    browser.until_text("#item-deadbolt .stock", "40 left").await;
    browser.click("#item-deadbolt a").await;
    browser.fill("#quantity", "2").await;
    browser.click("#buy").await;

    browser.until_text(".sums", "$98.00").await;
    browser.click(".checkout a[href^='/sign-in']").await;
    browser.sign_in("alice").await;
    browser.until_path("/basket").await;
    browser.click("#place").await;

    let order = browser.until_path("/orders/").await;
    browser.until_text("h1", "Not paid yet").await;
    browser.until_text(".left", "min").await;
    browser.until_text("#stock", "40 −2 → 38").await;
    browser.click("#pay").await;
    browser.until_text("h1", "Paid").await;
    assert_eq!(browser.until_path("/orders/").await, order);
    browser.until_text("#money", "$1,000.00 −$98.00 → $902.00").await;

    browser.go("/items/deadbolt/ledger").await;
    browser.until_text("#ledger li", "40 −2 → 38").await;
    browser.until_text("#books", "8 items of the shop · the books balance ✓").await;
    browser.click(".bar summary").await;
    let figures = "638 at the start + 0 restocked = 2 sold or reserved + 636 left";
    browser.until_text("#bar-figures", figures).await;
    browser.go(&order).await;
    let refund = browser.find("#refund").await;
    assert!(!refund.is_displayed().await.unwrap(), "before the question");
    browser.click("#ask-refund summary").await;
    let question = "Refund the whole order? $98.00 goes back";
    browser.until_text("#ask-refund form", question).await;
    browser.click("#refund").await;
    browser.until_text("h1", "Refunded").await;
    browser.until_text("#stock li:last-child", "38 +2 → 40").await;
    browser.until_text("#money li:last-child", "$902.00 +$98.00 → $1,000.00").await;
    browser.close().await;
    assert_eq!(shop.number("select count(*) from orders where status = 'refunded'").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purchase_works_from_shop_to_refund() {
    check_purchase(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purchase_works_without_javascript() {
    check_purchase(false).await;
}

async fn open_basket(
    shop: &TestShop,
    javascript: bool,
    capabilities: ChromeCapabilities,
) -> Browser {
    let browser = Browser::open_with(&shop.replicas[0].base_url, javascript, capabilities).await;
    browser.go("/sign-in").await;
    browser.sign_in("alice").await;
    browser.until_text("#item-deadbolt .stock", "40").await;
    browser.click("#item-deadbolt button").await;
    browser.find("#place").await;
    browser
}

async fn check_double_click(javascript: bool) {
    let shop = TestShop::start(1).await;
    let mut capabilities = DesiredCapabilities::chrome();
    capabilities.set_page_load_strategy(PageLoadStrategy::None).unwrap();
    let browser = open_basket(&shop, javascript, capabilities).await;
    let button = browser.center("#place").await;
    // The item's row is locked, so that the first order is in flight when the second click sends
    // the form again.
    let mut holder = shop.pool.begin().await.unwrap();
    let lock_row = "select from items where sku = 'deadbolt' for update";
    sqlx::query(lock_row).execute(&mut *holder).await.unwrap();
    browser.press(button).await;
    until("the first order waits for the row", async || shop.waiting_sessions().await > 0).await;
    browser.press(button).await;
    holder.rollback().await.unwrap();
    browser.until_path("/orders/").await;
    browser.until_text("h1", "Not paid yet").await;
    browser.close().await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    assert_eq!(shop.item_audit("deadbolt").await["sold"], 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn double_click_makes_one_order() {
    check_double_click(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn double_click_without_javascript_makes_one_order() {
    check_double_click(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_and_back_make_one_order() {
    let shop = TestShop::start(1).await;
    let browser = open_basket(&shop, true, DesiredCapabilities::chrome()).await;
    browser.click("#place").await;
    let order = browser.until_path("/orders/").await;
    browser.driver.refresh().await.unwrap();
    assert_eq!(browser.until_path("/orders/").await, order);
    browser.driver.back().await.unwrap();
    browser.until_path("/basket").await;
    // If the browser shows the cached page, its button leads to the same order.
    if let Ok(button) = browser.driver.find(By::Id("place")).await {
        button.click().await.unwrap();
        assert_eq!(browser.until_path("/orders/").await, order);
    } else {
        browser.until_text("main", "Your basket is empty").await;
    }
    browser.close().await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_and_totals_update_live() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/shop").await;
    browser.click(".bar summary").await;
    browser.until_text("#bar-figures", "0 sold or reserved + 638 left").await;
    let alice = shop.sign_in("alice").await;
    alice.orders("deadbolt", 3).ok().await;
    // The open details stay open while their figures change.
    browser.until_text("#bar-figures", "3 sold or reserved + 635 left").await;
    browser.until_text("#stock-deadbolt", "37 left").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_hold_removes_pay_despite_browser_clock() {
    // The first replica runs no jobs: orders expire only after the second one starts.
    let mut shop = TestShop::start_with(1, &[("HOLDFAST_PAY_WITHIN_S", "6")]).await;
    let browser = open_basket(&shop, true, DesiredCapabilities::chrome()).await;
    let an_hour_slow = "const now = Date.now; Date.now = () => now() - 3600e3;";
    let script = json!({ "source": an_hour_slow });
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", script).await;
    browser.until_text(".checkout", "We hold the units for you for 0 min 06 s.").await;
    browser.click("#place").await;
    browser.until_text("h1", "Not paid yet").await;
    browser.find("#pay").await;
    browser.until_text(".left", "0 min 0").await;
    browser.until_text("#order-actions", "The time to pay is over").await;
    browser.until_text("h1", "Not paid in time").await;
    assert!(browser.driver.find(By::Css("#pay")).await.is_err(), "the button is removed");
    browser.find("#cancel").await;
    assert_eq!(shop.number("select count(*) from orders where status = 'pending'").await, 1);
    // The order expires; the page updates by itself.
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    browser.until_text("#order-actions", "The units are back in the shop").await;
    browser.until_text("#stock", "39 +1 → 40").await;
    assert!(browser.console_errors().await.is_empty());
    browser.close().await;
    shop.assert_sound().await;
}

/// The clicks of a purchase, from the shop to the paid order.
const MAX_CLICKS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn newcomer_buys_within_six_clicks() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    let mut clicks = 0;
    let mut click = async |css: &str| {
        clicks += 1;
        browser.click(css).await;
    };
    browser.go("/shop").await;
    click("#item-deadbolt button").await;
    click("#create-account").await;
    browser.fill("#user", "dora").await;
    browser.fill("#password", "long enough").await;
    click("form.stack button").await;
    click("#place").await;
    browser.until_path("/orders/").await;
    click("#pay").await;
    browser.until_text("h1", "Paid").await;
    browser.until_text("#money", "$100.00 −$49.00 → $51.00").await;
    assert!(clicks <= MAX_CLICKS, "{clicks} clicks");
    browser.close().await;
    assert_eq!(shop.number("select count(*) from orders where status = 'paid'").await, 1);
    shop.assert_sound().await;
}

/// Presses Tab until the element has the focus; returns how often.
async fn tabs_to(browser: &Browser, css: &str) -> usize {
    let script = format!("return document.activeElement.matches(\"{css}\")");
    for tabs in 1..=40 {
        browser.driver.action_chain().send_keys(Key::Tab).perform().await.unwrap();
        let found = browser.driver.execute(&*script, vec![]).await.unwrap();
        if found.json().as_bool() == Some(true) {
            return tabs;
        }
    }
    panic!("{css} is not within 40 Tab stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn purchase_by_keyboard_needs_few_tabs() {
    let shop = TestShop::start(1).await;
    let browser = open_basket(&shop, true, DesiredCapabilities::chrome()).await;
    browser.go("/shop").await;
    let press = async |key: Key| {
        browser.driver.action_chain().send_keys(key).perform().await.unwrap();
    };
    let mut tabs = tabs_to(&browser, ".skip").await;
    press(Key::Enter).await;
    tabs += tabs_to(&browser, "#item-bike-chain button").await;
    press(Key::Enter).await;
    browser.until_path("/basket").await;
    tabs += tabs_to(&browser, ".skip").await;
    press(Key::Enter).await;
    tabs += tabs_to(&browser, "#place").await;
    press(Key::Enter).await;
    browser.until_path("/orders/").await;
    tabs += tabs_to(&browser, ".skip").await;
    press(Key::Enter).await;
    tabs += tabs_to(&browser, "#pay").await;
    press(Key::Enter).await;
    browser.until_text("h1", "Paid").await;
    // The basket has two lines, with four stops each.
    assert!(tabs <= 16, "{tabs} Tab stops");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_money_is_topped_up_once_and_pays() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (order, csrf) = alice.buy("strongbox", 6).await;
    let page = alice.get(&order).await;
    assert!(page.words().contains("Top up $134.00 and pay"), "{}", page.words());
    assert!(page.words().contains("Your balance is $1,000.00: $134.00 is missing."));
    assert!(!page.text.contains(&format!("action=\"{order}/pay\"")), "only one way to pay");
    // The form for another amount leads back to the order.
    let account = alice.get(&format!("/account?next={order}")).await;
    assert!(account.words().contains("Back to the order"));
    let form =
        format!("csrf={csrf}&key={}&amount=1&next={}", account.field("key"), account.field("next"));
    assert_eq!(alice.post("/account/top-ups", &form).await.location, order);
    let form = format!("csrf={csrf}&key={}&missing_cents=13300", page.field("key"));
    for _ in 0..2 {
        let paid = alice.post(&format!("{order}/top-up"), &form).await;
        assert_eq!((paid.status.as_u16(), &paid.location), (303, &order), "{}", paid.text);
    }
    let money = alice.get("/account").await.words();
    assert!(money.contains("$0.00 on your account"), "{money}");
    assert_eq!(shop.number("select count(*) from balance_ledger where delta = 13300").await, 1);
    // Elsewhere than to an order, the form does not lead.
    let form = format!("csrf={csrf}&key={}&amount=1&next=/sign-out", account.field("csrf"));
    assert_ne!(alice.post("/account/top-ups", &form).await.location, "/sign-out");
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_top_up_form_changes_no_balance() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (order, csrf) = alice.buy("deadbolt", 1).await;
    let top_ups = "select count(*) from top_ups";
    let before = shop.number(top_ups).await;
    let form = |csrf: &str, cents: &str| {
        format!("csrf={csrf}&key={}&missing_cents={cents}", uuid::Uuid::new_v4())
    };
    let bob = Visitor::signed_in(&shop, "bob").await;
    let bobs_csrf = bob.get("/basket").await.csrf();
    let foreign = bob.post(&format!("{order}/top-up"), &form(&bobs_csrf, "5")).await;
    assert_eq!(foreign.status, 404, "{}", foreign.text);

    let wrong = alice.post(&format!("{order}/top-up"), &form(&csrf, "-5")).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    assert!(wrong.text.contains("id=\"order-status\""), "it is the page of the order");

    let page = alice.get(&order).await;
    let pay = format!("csrf={csrf}&key={}", page.field("key"));
    assert_eq!(alice.post(&format!("{order}/pay"), &pay).await.location, order);
    let stale = alice.post(&format!("{order}/top-up"), &form(&csrf, "500")).await;
    assert_eq!((stale.status.as_u16(), &stale.location), (303, &order), "{}", stale.text);
    assert_eq!(shop.number(top_ups).await, before);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn basket_count_follows_other_tab() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/shop").await;
    let first = browser.driver.window().await.unwrap();
    browser.driver.new_tab().await.unwrap();
    let tabs = browser.driver.windows().await.unwrap();
    let second = tabs.iter().find(|tab| **tab != first).unwrap().clone();
    browser.driver.switch_to_window(second).await.unwrap();
    browser.go("/shop").await;
    browser.click("#item-deadbolt button").await;
    browser.until_text("#basket-link", "1").await;
    browser.driver.switch_to_window(first).await.unwrap();
    browser.until_text("#basket-link", "Basket 1").await;
    browser.close().await;
}
