//! The limit per customer on the card, on the item's page, in the basket before ordering, and in
//! the rejection.

use crate::common::Shop;
use crate::visitor::Visitor;

async fn set_limit(shop: &Shop, sku: &str, limit: &str) {
    let admin = Visitor::signed_in(shop, "admin").await;
    let csrf = admin.get(&format!("/items/{sku}")).await.csrf();
    let form = format!("csrf={csrf}&limit_per_user={limit}");
    let set = admin.post(&format!("/items/{sku}/limit"), &form).await;
    assert_eq!((set.status.as_u16(), set.location), (303, format!("/items/{sku}")), "{}", set.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_sets_customer_limit_and_pages_show_it() {
    let shop = Shop::start(1).await;
    let (visitor, admin) = (Visitor::new(&shop), Visitor::signed_in(&shop, "admin").await);
    assert!(!visitor.get("/items/deadbolt").await.words().contains("per customer"));
    // One item of the seed has a limit.
    let cards = visitor.get("/shop").await.words();
    assert_eq!(cards.matches("per customer").count(), 1, "{cards}");
    assert!(cards.contains("29.50 · at most 2 per customer"), "{cards}");
    set_limit(&shop, "deadbolt", "2").await;
    let card = visitor.get("/shop").await;
    assert!(card.words().contains("49.00 · at most 2 per customer"), "{}", card.words());
    assert!(card.text.contains(
        "id=\"quantity-deadbolt\" name=\"quantity\" type=\"number\" min=\"1\" max=\"2\""
    ));
    let item = visitor.get("/items/deadbolt").await;
    assert!(item.words().contains("40 on the shelf · at most 2 per customer"), "{}", item.words());
    assert!(!item.text.contains("name=\"limit_per_user\""), "the form is the admin's");
    let form = admin.get("/items/deadbolt").await;
    assert!(form.text.contains("name=\"limit_per_user\" inputmode=\"numeric\""));
    for (input, why) in [
        ("0", "Type 1 to 1000, or nothing: then there is no limit."),
        ("1001", "Type 1 to 1000, or nothing: then there is no limit."),
        ("many", "Type a whole number such as 2, or nothing."),
    ] {
        let path = "/items/deadbolt/limit";
        let form_fields = format!("csrf={}&limit_per_user={input}", form.csrf());
        let wrong = admin.post(path, &form_fields).await;
        assert_eq!(wrong.status, 422, "{input}");
        assert!(wrong.words().contains(why), "{input}: {}", wrong.words());
        assert!(wrong.text.contains(&format!("value=\"{input}\"")), "the input is kept");
    }
    assert!(visitor.get("/items/deadbolt").await.words().contains("at most 2 per customer"));
    set_limit(&shop, "deadbolt", "").await;
    assert!(!visitor.get("/items/deadbolt").await.words().contains("per customer"));
    let anonymous = visitor.post("/items/deadbolt/limit", "limit_per_user=1").await;
    assert_eq!(anonymous.location, "/sign-in?next=/items/deadbolt");
    assert_eq!(
        shop.number(
            "select count(*) from items where limit_per_user is not null and sku <> 'lock-picks'"
        )
        .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn basket_warns_about_customer_limit() {
    let shop = Shop::start(1).await;
    set_limit(&shop, "deadbolt", "2").await;
    // Without a session the basket shows the limit, and no purchases.
    let anonymous = Visitor::new(&shop);
    anonymous.fill_basket("deadbolt", 3).await;
    let basket = anonymous.get("/basket").await;
    let words = basket.words();
    assert!(words.contains("At most 2 per customer. Lower the quantity to 2."), "{words}");
    assert!(words.contains("49.00 each · 40 on the shelf ▲ At most"), "{words}");
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let words = alice.get("/basket").await.words();
    assert!(words.contains("40 on the shelf · at most 2 per customer"), "{words}");
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let words = alice.get("/basket").await.words();
    assert!(words.contains("at most 2 per customer, you have 1"), "{words}");
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    // Alice has two: the basket says so, and the button is disabled.
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let basket = alice.get("/basket").await;
    let words = basket.words();
    let text = "At most 2 per customer, and you have 2 in your orders. Take it out of the basket.";
    assert!(words.contains(text), "{words}");
    assert!(words.contains("Deadbolt, single cylinder: 1 in the basket, no more for you."));
    assert!(basket.text.contains("id=\"place\" disabled"));
    // The rejection of a form that is sent nevertheless says what to do next.
    let rejected = alice.order(&token, &csrf).await;
    assert_eq!(rejected.status, 409);
    let words = rejected.words();
    for text in [
        "Limit per customer reached",
        "At most 2 of deadbolt per customer: you have 2, and requested 1.",
        "Lower the quantity or remove the item from the basket, or cancel an order that contains it.",
        "Your orders",
    ] {
        assert!(words.contains(text), "{text}: {words}");
    }
    assert!(rejected.text.contains("href=\"/problems/limit-reached\""));
    let problem = alice.get("/problems/limit-reached").await;
    assert_eq!(problem.status, 200);
    assert!(problem.words().contains("Units in your pending and paid orders count"));
    assert_eq!(shop.number("select count(*) from orders").await, 2);
    shop.assert_sound().await;
}
