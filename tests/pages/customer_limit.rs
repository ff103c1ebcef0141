//! The limit per customer on the item's page, in the basket before ordering, and in the rejection.

use holdfast_testkit::TestShop;

use crate::visitor::Visitor;

async fn set_limit(shop: &TestShop, sku: &str, limit: &str) {
    let admin = Visitor::signed_in(shop, "admin").await;
    let path = format!("/admin/items/{sku}");
    let form = admin.get(&path).await.settings(&[("limit_per_user", limit)]);
    let set = admin.post(&format!("{path}/edit"), &form).await;
    assert_eq!((set.status.as_u16(), set.location), (303, format!("{path}?done=edit")));
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_sets_customer_limit_and_pages_show_it() {
    let shop = TestShop::start(1).await;
    let (visitor, admin) = (Visitor::new(&shop), Visitor::signed_in(&shop, "admin").await);
    assert!(!visitor.get("/items/deadbolt").await.words().contains("per customer"));
    // One item of the seed has a limit.
    let picks = visitor.get("/items/lock-picks").await.words();
    assert!(picks.contains("$29.50 25 left At most 2 per customer."), "{picks}");
    set_limit(&shop, "deadbolt", "2").await;
    let item = visitor.get("/items/deadbolt").await;
    assert!(item.words().contains("$49.00 40 left At most 2 per customer."), "{}", item.words());
    assert!(
        item.text.contains("id=\"quantity\" name=\"quantity\" type=\"number\" min=\"1\" max=\"2\"")
    );
    let form = admin.get("/admin/items/deadbolt").await;
    for input in ["0", "1001", "many"] {
        let why = "Enter 1 to 1000, or leave it blank for no limit.";
        let fields = form.settings(&[("limit_per_user", input)]);
        let wrong = admin.post("/admin/items/deadbolt/edit", &fields).await;
        assert_eq!(wrong.status, 422, "{input}");
        assert!(wrong.words().contains(why), "{input}: {}", wrong.words());
        assert!(wrong.text.contains(&format!("value=\"{input}\"")), "the input is kept");
    }
    assert!(visitor.get("/items/deadbolt").await.words().contains("At most 2 per customer"));
    set_limit(&shop, "deadbolt", "").await;
    assert!(!visitor.get("/items/deadbolt").await.words().contains("per customer"));
    let anonymous = visitor.post("/admin/items/deadbolt/edit", "limit_per_user=1").await;
    assert_eq!(anonymous.status, 401, "{}", anonymous.words());
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
    let shop = TestShop::start(1).await;
    set_limit(&shop, "deadbolt", "2").await;
    // Without a session the basket shows the limit, and no purchases.
    let anonymous = Visitor::new(&shop);
    anonymous.fill_basket("deadbolt", 3).await;
    let basket = anonymous.get("/basket").await;
    let words = basket.words();
    assert!(words.contains("At most 2 per customer. Lower the quantity to 2."), "{words}");
    assert!(words.contains("$49.00 each · 40 left ▲ At most"), "{words}");
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let words = alice.get("/basket").await.words();
    assert!(words.contains("40 left · At most 2 per customer."), "{words}");
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let words = alice.get("/basket").await.words();
    assert!(words.contains("At most 2 per customer. You already have 1."), "{words}");
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    // Alice has two: item, shop and basket say so, and offer no more.
    for page in ["/items/deadbolt", "/shop"] {
        let page = alice.get(page).await;
        assert!(page.words().contains("You have 2 in your orders, the most"), "{}", page.words());
        assert!(!page.text.contains("name=\"sku\" value=\"deadbolt\""), "{}", page.text);
    }
    assert!(anonymous.get("/shop").await.text.contains("name=\"sku\" value=\"deadbolt\""));
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let basket = alice.get("/basket").await;
    let words = basket.words();
    let text = "At most 2 per customer. You already have 2. Remove it from the basket.";
    assert!(words.contains(text), "{words}");
    assert!(basket.text.contains("id=\"place\" disabled"));
    // The rejection of a form that is sent nevertheless says what to do next.
    let rejected = alice.order(&token, &csrf).await;
    assert_eq!(rejected.status, 409);
    let words = rejected.words();
    for text in [
        "Limit per customer reached",
        "At most 2 of Deadbolt, single cylinder per customer: you have 2, and requested 1.",
        "Lower the quantity or remove the item from the basket, or cancel an order that contains it.",
        "Your orders",
    ] {
        assert!(words.contains(text), "{text}: {words}");
    }
    assert!(rejected.text.contains("href=\"/problems#limit-reached\""));
    let problem = alice.get("/problems").await;
    assert_eq!(problem.status, 200);
    assert!(problem.words().contains("Units in your pending and paid orders count"));
    assert_eq!(shop.number("select count(*) from orders").await, 2);
    shop.assert_sound().await;
}
