//! The basket belongs to the account: it is on every device, and leaves the browser with the
//! session.

use holdfast_testkit::TestShop;
use tokio::task::JoinSet;

use crate::visitor::Visitor;

/// What the basket's page says of its lines: the quantities by item.
async fn quantities(visitor: &Visitor) -> Vec<(String, String)> {
    let page = visitor.get("/basket").await.text;
    let lines = page.split("name=\"sku\" value=\"").skip(1);
    let lines = lines.map(|line| {
        let sku = line.split('"').next().unwrap().to_owned();
        let quantity = line.split("name=\"quantity\"").nth(1).unwrap_or_default();
        let quantity = quantity.split("value=\"").nth(1).unwrap_or_default();
        (sku, quantity.split('"').next().unwrap_or_default().to_owned())
    });
    lines.collect()
}

fn line(sku: &str, quantity: &str) -> (String, String) {
    (sku.to_owned(), quantity.to_owned())
}

async fn signs_in(visitor: &Visitor, name: &str) {
    let signed_in = visitor.post("/sign-in", &format!("user={name}&password={name}")).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.words());
}

async fn signs_out(visitor: &Visitor) {
    let csrf = visitor.get("/shop").await.csrf();
    assert_eq!(visitor.post("/sign-out", &format!("csrf={csrf}")).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn basket_follows_the_account() {
    let shop = TestShop::start(2).await;
    let phone = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = phone.fill_basket("deadbolt", 2).await;

    let mut laptop = Visitor::new(&shop);
    laptop.base = shop.replicas[1].base_url.clone();
    laptop.fill_basket("key-ring", 1).await;
    signs_in(&laptop, "alice").await;
    let both = [line("deadbolt", "2"), line("key-ring", "1")];
    for device in [&laptop, &phone] {
        assert_eq!(quantities(device).await, both);
        assert!(device.get("/shop").await.words().contains("Basket 3"));
    }

    // The phone's form is of the basket before.
    assert_eq!(phone.order(&token, &csrf).await.status, 409);
    let page = laptop.get("/basket").await;
    let order = laptop.order(&page.field("token"), &page.csrf()).await;
    assert_eq!((order.status.as_u16(), &order.location[..8]), (303, "/orders/"));
    for device in [&laptop, &phone] {
        assert!(device.get("/basket").await.words().contains("Your basket is empty"));
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_person_sees_no_basket() {
    let shop = TestShop::start(1).await;
    let browser = Visitor::new(&shop);
    browser.fill_basket("deadbolt", 2).await;
    signs_in(&browser, "alice").await;
    assert_eq!(quantities(&browser).await, [line("deadbolt", "2")]);
    signs_out(&browser).await;
    assert!(browser.get("/basket").await.words().contains("Your basket is empty"));

    signs_in(&browser, "bob").await;
    assert!(browser.get("/basket").await.words().contains("Your basket is empty"));
    signs_out(&browser).await;
    signs_in(&browser, "alice").await;
    assert_eq!(quantities(&browser).await, [line("deadbolt", "2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_add_at_once() {
    let shop = TestShop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let csrf = alice.get("/basket").await.csrf();
    let mut adding = JoinSet::new();
    for tab in 0..6 {
        let base = shop.replicas[tab % 2].base_url.clone();
        let tab = Visitor { http: alice.http.clone(), base };
        let form = format!("csrf={csrf}&sku=deadbolt&quantity=1");
        adding.spawn(async move { tab.post("/basket/lines", &form).await });
    }
    let added = adding.join_all().await;
    assert!(added.iter().all(|page| page.status == 303), "{}", added[0].words());
    assert_eq!(quantities(&alice).await, [line("deadbolt", "6")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn double_sign_in_doubles_nothing() {
    let shop = TestShop::start(2).await;
    let phone = Visitor::signed_in(&shop, "alice").await;
    phone.fill_basket("deadbolt", 3).await;
    phone.fill_basket("key-ring", 1).await;

    let browser = Visitor::new(&shop);
    browser.fill_basket("deadbolt", 2).await;
    browser.fill_basket("key-ring", 4).await;
    let other = Visitor { http: browser.http.clone(), base: shop.replicas[1].base_url.clone() };
    tokio::join!(signs_in(&browser, "alice"), signs_in(&other, "alice"));
    assert_eq!(quantities(&browser).await, [line("deadbolt", "3"), line("key-ring", "4")]);
}

/// A replica that dies between the order and the emptying of its basket leaves the basket: its form
/// leads to the order that was placed.
#[tokio::test(flavor = "multi_thread")]
async fn basket_that_was_ordered_orders_nothing_again() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 2).await;
    let content: String =
        sqlx::query_scalar("select content from baskets").fetch_one(&shop.pool).await.unwrap();
    let order = alice.order(&token, &csrf).await.location;
    assert_eq!(shop.number("select count(*) from baskets").await, 0);

    let back =
        "insert into baskets (user_id, content) select id, $1 from users where name = 'alice'";
    sqlx::query(back).bind(content).execute(&shop.pool).await.unwrap();
    assert_eq!(alice.order(&token, &csrf).await.location, order);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    assert_eq!(shop.number("select count(*) from baskets").await, 0);
}

/// What is in the account is data, too: a content that no page writes is an empty basket.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_basket_is_empty_and_can_be_filled() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    shop.execute(
        "insert into baskets (user_id, content) select id, 'x.y' from users where name = 'alice'",
    )
    .await;
    assert!(alice.get("/basket").await.words().contains("Your basket is empty"));
    alice.fill_basket("deadbolt", 1).await;
    assert_eq!(quantities(&alice).await, [line("deadbolt", "1")]);
}
