//! The shop while nothing can be ordered: its pages show it, say so, and sell again by themselves.

use holdfast_testkit::proxy::{self, Proxy, Traffic};
use holdfast_testkit::{TestShop, until};

use crate::browser::Browser;
use crate::visitor::Visitor;

const PAUSED: &str = "Selling is paused.";

async fn shop_behind(postgres: &Proxy) -> TestShop {
    let mut shop = TestShop::without_replicas().await;
    let url = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    shop.add_replica(&[("DATABASE_URL", &url)]);
    shop
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_shows_last_catalogue_in_both_languages() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(&postgres).await;
    let (anonymous, alice) = (Visitor::new(&shop), Visitor::signed_in(&shop, "alice").await);
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    for path in ["/shop", "/items/deadbolt", "/basket"] {
        assert!(!alice.get(path).await.words().contains(PAUSED), "{path}");
    }

    postgres.cut().await;
    for visitor in [&anonymous, &alice] {
        for path in ["/shop", "/items/deadbolt", "/shop?after=bike-chain"] {
            for (language, texts) in [
                ("en", [PAUSED, "This page is as of 20", "Deadbolt, single cylinder", "40 left"]),
                ("zh", ["暂停销售。", "页面内容的读取时间：20", "加入购物车", "剩 40 件"]),
            ] {
                let page = visitor.get_in(language, path).await;
                assert_eq!(page.status, 200, "{path}");
                let words = page.words();
                let missing = texts.into_iter().find(|text| !words.contains(*text));
                assert_eq!(missing, None, "{path}: {words}");

                let buttons = page.text.matches(" id=\"buy").count();
                let disabled = page.text.matches(" disabled aria-describedby=\"paused\"").count();
                assert!(buttons > 0 && buttons == disabled, "{path}: {}", page.text);
            }
        }
    }
    // It is not known whether the one exists, nor what the others have by now.
    for path in ["/items/nothing", "/shop?after=nothing", "/basket", "/orders"] {
        let page = alice.get(path).await;
        assert_eq!(page.status, 503, "{path}");
        assert!(page.words().contains("Postgres or Redis is unavailable"), "{path}");
    }

    postgres.set(Traffic::Forwarded);
    until("the shop sells again", async || {
        let page = alice.get("/basket").await;
        page.status == 200 && !page.words().contains(PAUSED)
    })
    .await;
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_pauses_and_sells_again() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(&postgres).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go("/items/deadbolt").await;
    let can_buy = async || browser.find("#buy").await.is_enabled().await.unwrap();
    assert!(can_buy().await);

    postgres.cut().await;
    browser.until_text("#paused", PAUSED).await;
    assert!(!can_buy().await);

    postgres.set(Traffic::Forwarded);
    until("the page sells again", can_buy).await;
    browser.click("#buy").await;
    browser.until_text(".sums", "$49.00").await;
    browser.close().await;
}
