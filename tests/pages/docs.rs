//! The page of the API's description.

use serde_json::Value;

use crate::browser::Browser;
use crate::common::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn docs_page_needs_nothing_inline() {
    let shop = Shop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/api/docs/").await;
    browser.click("#operations-items-items-list button.opblock-summary-control").await;
    browser.click("#operations-items-items-list button.try-out__btn").await;
    browser.click("#operations-items-items-list button.execute").await;
    let status =
        "#operations-items-items-list .live-responses-table tr.response .response-col_status";
    browser.until_text(status, "200").await;
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}
