//! Refunding by an admin's page: it asks before it acts, the admin says why, and a form that
//! another admin opened is shown again.

use holdfast_testkit::TestShop;

use crate::visitor::{Page, Visitor};

const KEY: &str = "0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d";
const REFUNDS: &str = "select count(*) from balance_ledger where reason = 'refund'";

/// Alice buys and pays two dead bolts; returns the order's id.
async fn paid_order(alice: &Visitor) -> String {
    let (order, csrf) = alice.buy("deadbolt", 2).await;
    let pay = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
    assert_eq!(alice.post(&format!("{order}/pay"), &pay).await.status, 303);
    order.strip_prefix("/orders/").unwrap().to_owned()
}

async fn promoted(shop: &TestShop, name: &str) -> Visitor {
    shop.promoted(name).await;
    Visitor::signed_in(shop, name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_returns_an_order_with_a_reason() {
    let shop = TestShop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let id = paid_order(&alice).await;
    let page = format!("/admin/orders/{id}");

    let shown = admin.get(&page).await;
    for (language, asks) in [
        ("en", "Refund the whole order? $98.00 goes back to the account of alice, and 2 units to"),
        ("zh", "要为整个订单退款吗？$98.00 将退回 alice 的账户"),
    ] {
        let words = admin.get_in(language, &page).await.words();
        assert!(words.contains(asks), "{words}");
    }
    let form =
        |reason: &str| format!("csrf={}&key={}&reason={reason}", shown.csrf(), shown.field("key"));
    let refund = format!("{page}/refund");
    for (language, why) in
        [("en", "Enter 1 to 200 characters on one line."), ("zh", "1 到 200 个字符")]
    {
        let request = admin.form_request(&refund, &form("+")).header("Accept-Language", language);
        let rejected = Page::read(request.send().await.unwrap()).await;
        assert_eq!(rejected.status, 422, "{}", rejected.words());
        assert!(rejected.words().contains(why), "{}", rejected.words());
        assert!(rejected.text.contains("id=\"ask-refund\" open"), "{}", rejected.text);
    }
    assert_eq!(shop.number(REFUNDS).await, 0);

    // A double click, at two replicas.
    let other = Visitor { http: admin.http.clone(), base: shop.replicas[1].base_url.clone() };
    let sent = form("arrived+%3Cb%3Ebroken");
    let (first, second) = tokio::join!(admin.post(&refund, &sent), other.post(&refund, &sent));
    for page in [first, second] {
        let place = format!("/admin/orders/{id}?done=refund");
        assert_eq!((page.status.as_u16(), page.location), (303, place), "{}", page.text);
    }
    assert_eq!((shop.number(REFUNDS).await, shop.stock("deadbolt").await), (1, 40));

    let done = admin.get(&format!("{page}?done=refund")).await.words();
    assert!(done.contains("$98.00 is back on the account of alice"), "{done}");
    let logged = "order refunded";
    assert!(done.contains(logged) && done.contains("reason: arrived &#60;b&#62;broken"), "{done}");
    assert!(done.contains("status: paid → refunded"), "{done}");
    let log = admin.get("/admin/log").await;
    assert!(log.words().contains(logged), "{}", log.words());
    assert!(log.text.contains(&format!("href=\"/admin/orders/{id}\"")), "{}", log.text);
    let csv = admin.get("/admin/log.csv").await.text;
    assert!(csv.contains(&format!("refund-order,{id},alice")), "{csv}");

    // The customer is told who did it, and not why.
    let customer = alice.get(&format!("/orders/{id}")).await.words();
    assert!(customer.contains("The shop did this. Refunded. $98.00 is back"), "{customer}");
    assert!(!customer.contains("broken"), "{customer}");

    // What the customer does meanwhile is said above the order.
    let id = paid_order(&alice).await;
    let own = format!("/orders/{id}");
    let refund = format!("csrf={}&key={KEY}", alice.get(&own).await.csrf());
    alice.post(&format!("{own}/refund"), &refund).await;
    let late = format!("/admin/orders/{id}/refund");
    let late = admin.post(&late, &form("late").replace(&shown.field("key"), KEY)).await;
    assert_eq!(late.status, 409, "{}", late.words());
    assert!(late.text.contains("role=\"alert\""), "{}", late.words());
    // An old address does not claim what is not so.
    let (pending, _) = alice.buy("deadbolt", 1).await;
    let done = admin.get(&format!("/admin{pending}?done=refund")).await;
    assert!(!done.text.contains("id=\"done\""), "{}", done.words());
    assert!(!alice.get(&own).await.words().contains("The shop did this."));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_another_admin_is_shown_again() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (admin, bob) = (Visitor::signed_in(&shop, "admin").await, promoted(&shop, "bob").await);
    let order = format!("/admin/orders/{}", paid_order(&alice).await);
    let csrf = bob.get("/admin").await.csrf();
    for (page, form, fields) in [
        ("/admin", "/admin/items", "sku=new&name=New&price=1&stock=1"),
        ("/admin/items/deadbolt", "/admin/items/deadbolt/edit", "name=Bolt&price=1"),
        ("/admin/items/deadbolt", "/admin/items/deadbolt/stock", "delta=5&reason=restock"),
        ("/admin/users/carol", "/admin/users/carol/disabled", "disabled=yes"),
        ("/admin/users/carol", "/admin/users/carol/sessions", ""),
        ("/admin/users/carol", "/admin/users/carol/password", "new=Quince-jam-for-7"),
        (&order, &format!("{order}/refund"), "reason=broken"),
    ] {
        let opened = admin.get(page).await;
        let (key, opener) = (opened.field("key"), opened.field("opened_by"));
        assert_eq!(opener, "admin", "{page}");
        let sent = format!("csrf={csrf}&key={key}&opened_by={opener}&{fields}");
        let shown = bob.post(form, &sent).await;
        assert_eq!(shown.status, 403, "{form}: {} {}", shown.location, shown.words());
        assert!(shown.words().contains("Opened by admin"), "{form}: {}", shown.words());
        assert!(shown.text.contains("name=\"opened_by\" value=\"bob\""), "{form}");
    }
    assert_eq!(shop.number("select count(*) from admin_log").await, 0);
    assert_eq!((shop.number(REFUNDS).await, shop.stock("deadbolt").await), (0, 38));
}

/// A form is sent, and sent again after its session has ended, when another admin signs in.
#[tokio::test(flavor = "multi_thread")]
async fn kept_form_of_another_admin_is_not_executed_twice() {
    let shop = TestShop::start(1).await;
    shop.promoted("bob").await;
    let browser = Visitor::signed_in(&shop, "admin").await;
    let item = browser.get("/admin/items/deadbolt").await;
    let (csrf, key) = (item.csrf(), item.field("key"));
    let restock = |csrf: &str, opener: &str| {
        format!("csrf={csrf}&key={key}&opened_by={opener}&delta=5&reason=restock")
    };
    let address = "/admin/items/deadbolt/stock";
    let opener = item.field("opened_by");
    assert_eq!(browser.post(address, &restock(&csrf, &opener)).await.status, 303);
    assert_eq!(browser.post("/sign-out", &format!("csrf={csrf}")).await.status, 303);

    let asked = browser.post(address, &restock(&csrf, &opener)).await;
    assert_eq!(asked.status, 401, "{}", asked.words());
    let kept = format!(
        "kept-form={address}&kept_key={key}&kept_opened_by={}&kept_delta=5&kept_reason=restock",
        asked.field("kept_opened_by")
    );
    let shown = browser.post("/sign-in", &format!("user=bob&password=bob&{kept}")).await;
    assert_eq!(shown.status, 200, "{}", shown.words());
    let stock_form = shown.text.split_once(address).unwrap().1;
    assert!(stock_form.contains("name=\"opened_by\" value=\"admin\""), "{stock_form}");

    let again = browser.post(address, &restock(&shown.csrf(), "admin")).await;
    assert_eq!(again.status, 403, "{}", again.words());
    assert_eq!(shop.stock("deadbolt").await, 45, "once");
    // On purpose, in the name of who sends it.
    assert_eq!(browser.post(address, &restock(&shown.csrf(), "bob")).await.status, 303);
    assert_eq!(shop.stock("deadbolt").await, 50);
    shop.assert_sound().await;
}
