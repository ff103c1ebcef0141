//! What a page showed is what its buyer pays, and what was sold keeps its name.

use holdfast_testkit::{TestShop, User};
use serde_json::{Value, json};

use crate::visitor::{Page, Visitor};

const SKU: &str = "blue-kettle";
const ORDERS: &str = "select count(*) from orders";

/// A shop with an item for 1.00, of which alice has three in her basket; and the basket's page.
async fn shop_with_basket() -> (TestShop, User, Visitor, Page) {
    let shop = TestShop::start(2).await;
    let admin = shop.sign_in("admin").await;
    let item = json!({ "sku": SKU, "name": "Blue kettle", "price_cents": 100, "stock": 20 });
    admin.creates_item(&item).ok().await;

    let alice = Visitor::signed_in(&shop, "alice").await;
    alice.fill_basket(SKU, 3).await;
    let page = alice.get("/basket").await;
    assert!(page.words().contains("Total$3.00"), "{}", page.words());
    (shop, admin, alice, page)
}

async fn set_price(admin: &User, cents: i64) {
    admin.edits(SKU, &json!({ "price_cents": cents })).ok().await;
}

async fn sends(visitor: &Visitor, language: &str, page: &Page) -> Page {
    let request = visitor.form_request("/orders", &page.hidden_fields("/orders"));
    Page::read(request.header("Accept-Language", language).send().await.unwrap()).await
}

async fn total_of(shop: &TestShop, order: &Page) -> Value {
    let alice = shop.sign_in("alice").await;
    alice.order(order.location.rsplit('/').next().unwrap()).await["total_cents"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn raised_price_is_shown_before_it_is_accepted() {
    let (shop, admin, alice, page) = shop_with_basket().await;
    set_price(&admin, 25_000).await;
    for (language, sentence, line) in [
        ("en", "The total was $3.00 on the page, and is $750.00 now.", "$250.00 each, was $1.00"),
        ("zh", "页面上的总价为 $3.00，现在为 $750.00。", "单价 $250.00，原为 $1.00"),
    ] {
        // The second time as the second copy of a double click, whose page is the one that stays.
        let refused = sends(&alice, language, &page).await;
        assert_eq!(refused.status, 409, "{}", refused.words());
        let words = refused.words();
        assert!(words.contains(sentence) && words.contains(line), "{words}");
        assert_ne!(refused.field("token"), page.field("token"));
    }
    assert_eq!(shop.number(ORDERS).await, 0);

    let shown = sends(&alice, "en", &page).await;
    assert!(shown.words().contains("$750.00, was $3.00"), "{}", shown.words());
    let accepted = sends(&alice, "en", &shown).await;
    assert_eq!(accepted.status, 303, "{}", accepted.words());
    assert_eq!(total_of(&shop, &accepted).await, 75_000);
    assert_eq!(shop.number(ORDERS).await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sold_item_keeps_its_names() {
    let (shop, admin, alice, page) = shop_with_basket().await;
    let in_chinese = "update items set name_zh = '蓝色水壶' where sku = 'blue-kettle'";
    shop.execute(in_chinese).await;
    let order = sends(&alice, "en", &page).await.location;
    let pay = format!("csrf={}&key={}", page.csrf(), alice.get(&order).await.field("key"));
    assert_eq!(alice.post(&format!("{order}/pay"), &pay).await.status, 303);

    admin.edits(SKU, &json!({ "name": "Red toaster" })).ok().await;
    shop.execute("update items set name_zh = '红色烤面包机' where sku = 'blue-kettle'").await;
    let admin_visitor = Visitor::signed_in(&shop, "admin").await;
    for (language, sold, now) in
        [("en", "Blue kettle", "Red toaster"), ("zh", "蓝色水壶", "红色烤面包机")]
    {
        let item = alice.get_in(language, "/items/blue-kettle").await.words();
        assert!(item.contains(now), "{item}");
        let of_admin = format!("/admin{order}");
        for (who, path) in [
            (&alice, order.as_str()),
            (&alice, "/orders"),
            (&admin_visitor, &of_admin),
            (&admin_visitor, "/admin/orders"),
        ] {
            let words = who.get_in(language, path).await.words();
            assert!(words.contains(sold) && !words.contains(now), "{path}: {words}");
        }
    }
    let file = admin_visitor.get("/admin/orders.csv").await.text;
    assert!(file.contains(",blue-kettle,Blue kettle,蓝色水壶,3,100"), "{file}");
}
