//! A purchase in a real browser, from the shop page to a refund; double clicks, reload and back.

use serde_json::json;
use thirtyfour::PageLoadStrategy;
use thirtyfour::prelude::*;

use crate::browser::Browser;
use crate::common::{Shop, until};

async fn check_purchase(javascript: bool) {
    let shop = Shop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, javascript).await;
    browser.go("/shop").await;
    browser.until_text("#item-deadbolt .stock", "40 on the shelf").await;
    browser.fill("#quantity-deadbolt", "2").await;
    browser.click("#item-deadbolt button").await;

    browser.until_text(".sums", "98.00").await;
    browser.click("a.button[href^='/sign-in']").await;
    browser.sign_in("alice").await;
    browser.until_path("/basket").await;
    browser.click("#place").await;

    let order = browser.until_path("/orders/").await;
    browser.until_text("h1", "pending").await;
    browser.until_text(".left", "min").await;
    browser.until_text("#stock", "40 −2 → 38").await;
    browser.click("#pay").await;
    browser.until_text("h1", "paid").await;
    assert_eq!(browser.until_path("/orders/").await, order);
    browser.until_text("#money", "1,000.00 −98.00 → 902.00").await;

    browser.go("/items/deadbolt").await;
    browser.until_text("#ledger li", "40 −2 → 38").await;
    browser.until_text("#books", "opening 638 + restocked 0 = sold 2 + on the shelf 636 ✓").await;
    browser.go(&order).await;
    browser.click("#refund").await;
    browser.until_text("h1", "refunded").await;
    browser.until_text("#stock li:last-child", "38 +2 → 40").await;
    browser.until_text("#money li:last-child", "902.00 +98.00 → 1,000.00").await;
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

/// Signs in and fills the basket.
async fn open_basket(shop: &Shop, javascript: bool, strategy: PageLoadStrategy) -> Browser {
    let browser = Browser::open_with(&shop.replicas[0].base_url, javascript, strategy).await;
    browser.go("/sign-in").await;
    browser.sign_in("alice").await;
    browser.until_text("#item-deadbolt .stock", "40").await;
    browser.click("#item-deadbolt button").await;
    browser.find("#place").await;
    browser
}

async fn check_double_click(javascript: bool) {
    let shop = Shop::start(1).await;
    let browser = open_basket(&shop, javascript, PageLoadStrategy::None).await;
    let button = browser.center("#place").await;
    // The item's row is locked, so that the first order is in flight when the second click sends
    // the form again.
    let mut holder = shop.pool.begin().await.unwrap();
    let lock_row = "select from items where sku = 'deadbolt' for update";
    sqlx::query(lock_row).execute(&mut *holder).await.unwrap();
    browser.press(button).await;
    until("the first order waits for the row", async || {
        let strategy = "select count(*) from pg_stat_activity
                        where wait_event_type = 'Lock' and datname = current_database()";
        shop.number(strategy).await > 0
    })
    .await;
    browser.press(button).await;
    holder.rollback().await.unwrap();
    browser.until_path("/orders/").await;
    browser.until_text("h1", "pending").await;
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
    let shop = Shop::start(1).await;
    let browser = open_basket(&shop, true, PageLoadStrategy::Normal).await;
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
        browser.until_text("main", "Nothing is in it").await;
    }
    browser.close().await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_and_totals_update_live() {
    let shop = Shop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/shop").await;
    browser.until_text("#books", "sold 0 + on the shelf 638 ✓").await;
    let alice = shop.sign_in("alice").await;
    shop.place_order(&alice, "deadbolt", 3).await;
    browser.until_text("#books", "sold 3 + on the shelf 635 ✓").await;
    browser.until_text("#shelf-deadbolt", "37 on the shelf").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_hold_removes_pay_despite_browser_clock() {
    // The first replica runs no jobs: orders expire only after the second one starts.
    let mut shop = Shop::start_with(1, &[("HOLDFAST_PAY_WITHIN_S", "6")]).await;
    let browser = open_basket(&shop, true, PageLoadStrategy::Normal).await;
    let an_hour_slow = "const now = Date.now; Date.now = () => now() - 3600e3;";
    let script = json!({ "source": an_hour_slow });
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", script).await;
    browser.until_text(".checkout", "The units are held for you for 6 seconds.").await;
    browser.click("#place").await;
    browser.until_text("h1", "pending").await;
    browser.find("#pay").await;
    browser.until_text(".left", "0 min 0").await;
    browser.until_text("#order-actions", "The hold is over").await;
    browser.until_text("h1", "not paid in time").await;
    assert!(browser.driver.find(By::Css("#pay")).await.is_err(), "the button is gone");
    browser.find("#cancel").await;
    assert_eq!(shop.number("select count(*) from orders where status = 'pending'").await, 1);
    // The order expires; the page updates by itself.
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    browser.until_text("#order-actions", "Its units are back on the shelf").await;
    browser.until_text("#stock", "39 +1 → 40").await;
    assert!(browser.console_errors().await.is_empty());
    browser.close().await;
    shop.assert_sound().await;
}
