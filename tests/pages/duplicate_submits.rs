//! A form that is sent more than once makes one order, one payment, one top-up.

use std::time::Duration;

use holdfast_lock::{AcquireOutcome, AcquireRequest, LockKind, Locks, Redis, Settings, Wait};
use holdfast_testkit::{TestShop, services};
use tokio::task::JoinSet;

use crate::visitor::{Page, Visitor};

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_forms_make_one_order() {
    let shop = TestShop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 2).await;
    let form = format!("csrf={csrf}&token={token}");
    let mut copies = JoinSet::new();
    for copy in 0..6 {
        // Cookies are not bound to a port, so both replicas receive them.
        let base = shop.replicas[copy % 2].base_url.clone();
        let visitor = Visitor { http: alice.http.clone(), base };
        let request = visitor.form_request("/orders", &form);
        copies.spawn(async move { Page::read(request.send().await.unwrap()).await });
    }
    let pages = copies.join_all().await;
    assert!(pages.iter().all(|page| page.status == 303), "{}", pages[0].text);
    assert!(pages.iter().all(|page| page.location == pages[0].location));
    assert_eq!(alice.get(&pages[0].location).await.status, 200);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    assert_eq!(shop.item_audit("deadbolt").await["sold"], 2);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_form_leads_to_its_order() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let order = alice.order(&token, &csrf).await.location;
    assert!(alice.get("/basket").await.words().contains("Your basket is empty"));
    assert_eq!(alice.order(&token, &csrf).await.location, order);

    let (next, _) = alice.fill_basket("key-ring", 1).await;
    assert_ne!(next, token);
    assert_eq!(alice.order(&token, &csrf).await.location, order);
    // The basket that was filled since remains, and is another order.
    assert_ne!(alice.order(&next, &csrf).await.location, order);
    assert_eq!(shop.number("select count(*) from orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_changed_basket_orders_nothing() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (old, csrf) = alice.fill_basket("deadbolt", 1).await;
    alice.fill_basket("deadbolt", 1).await;
    let rejected = alice.order(&old, &csrf).await;
    assert_eq!(rejected.status, 409);
    assert!(rejected.words().contains("no longer as that page showed it; nothing was ordered"));
    assert!(!rejected.text.contains("idempotency-key-mismatch"));
    assert!(
        rejected
            .text
            .contains("<a href=\"/basket\" id=\"basket-link\" data-swap aria-current=\"page\">")
    );
    assert!(rejected.text.contains("<a href=\"/orders\">"), "not marked");
    assert_eq!(shop.number("select count(*) from orders").await, 0);
    // The page of the rejection has a form that orders the current basket.
    assert_eq!(alice.order(&rejected.field("token"), &csrf).await.status, 303);
    assert_eq!(shop.item_audit("deadbolt").await["sold"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_buyer_lock_times_out_with_page() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let locks = Locks::new(redis, Settings::default().with_key_prefix(&shop.prefix)).unwrap();
    let user = shop.user_id("alice").await;
    let keys = [user.buyer_lock_key()];
    let request = AcquireRequest::new(LockKind::Owner, &keys)
        .with_wait(Wait::Try)
        .with_ttl(Duration::from_secs(60));
    let AcquireOutcome::Acquired(guards) = locks.acquire(request).await.unwrap() else {
        panic!("it is free")
    };
    let rejected = alice.order(&token, &csrf).await;
    assert_eq!(rejected.status, 423);
    assert!(rejected.words().contains("The lock is held"));
    // Another copy may be in flight, so the token stays: the next form is the same order.
    assert_eq!(rejected.field("token"), token);
    guards.release().await;
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_order_gets_a_new_token() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("last-lantern", 1).await;
    let bob = shop.sign_in("bob").await;
    bob.orders("last-lantern", 1).ok().await;
    let rejected = alice.order(&token, &csrf).await;
    assert_eq!(rejected.status, 409);
    assert!(rejected.words().contains("Not enough stock"));
    assert!(rejected.words().contains("Sold out. Remove it from the basket."));
    let page = alice.get("/basket").await;
    assert_eq!(rejected.field("token"), page.field("token"));
    assert_ne!(page.field("token"), token);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_payment_and_top_up_execute_once() {
    let shop = TestShop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (order, csrf) = alice.buy("strongbox", 6).await;
    let key = alice.get(&order).await.field("key");
    let pay = format!("csrf={csrf}&key={key}");
    let unpaid_page = alice.post(&format!("{order}/pay"), &pay).await;
    assert_eq!(unpaid_page.status, 402);
    assert!(unpaid_page.words().contains("$1,134.00 due, $1,000.00 in the account."));

    let account = alice.get("/account").await;
    let top_up = format!("csrf={csrf}&key={}&amount=500.50", account.field("key"));
    send_twice(&shop, &alice, "/account/top-ups", &top_up, "/account").await;
    assert!(alice.get("/account").await.words().contains("$1,500.50 on your account"));
    let pay = format!("csrf={csrf}&key={}", unpaid_page.field("key"));
    send_twice(&shop, &alice, &format!("{order}/pay"), &pay, &order).await;
    assert!(alice.get("/account").await.words().contains("$366.50 on your account"));
    assert_eq!(shop.number("select count(*) from balance_ledger where delta < 0").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_restock_cancel_and_refund_execute_once() {
    let shop = TestShop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let admin = Visitor::signed_in(&shop, "admin").await;

    let item = admin.get("/admin/items/deadbolt").await;
    let restock = format!("csrf={}&key={}&delta=5&reason=restock", item.csrf(), item.field("key"));
    let (address, place) = ("/admin/items/deadbolt/stock", "/admin/items/deadbolt?done=stock");
    send_twice(&shop, &admin, address, &restock, place).await;
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 45);
    // The same key with another payload is rejected, not replayed.
    let other = restock.replace("delta=5", "delta=6");
    assert_eq!(admin.post(address, &other).await.status, 422);
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 45);

    for action in ["cancel", "refund"] {
        let (order, csrf) = alice.buy("deadbolt", 1).await;
        if action == "refund" {
            let pay = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
            assert_eq!(alice.post(&format!("{order}/pay"), &pay).await.status, 303);
        }
        let form = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
        send_twice(&shop, &alice, &format!("{order}/{action}"), &form, &order).await;
        assert_eq!(shop.item_audit("deadbolt").await["stock"], 45, "{action}");
    }
    assert_eq!(shop.number("select count(*) from balance_ledger where reason = 'refund'").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_without_key_changes_nothing() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let (order, csrf) = admin.buy("deadbolt", 1).await;
    for (path, form) in [
        (format!("{order}/pay"), ""),
        (format!("{order}/cancel"), ""),
        (format!("{order}/refund"), ""),
        ("/account/top-ups".to_owned(), "amount=5"),
        ("/admin/items/deadbolt/stock".to_owned(), "delta=5&reason=restock"),
        ("/admin/items/deadbolt/edit".to_owned(), "name=New&price=1"),
        ("/admin/items".to_owned(), "sku=new&name=New&price=1&stock=1"),
    ] {
        let rejected = admin.post(&path, &format!("csrf={csrf}&{form}")).await;
        assert_eq!(rejected.status, 422, "{path}");
        assert!(rejected.words().contains("Key: it is missing."), "{}", rejected.words());
    }
    assert_eq!(shop.number("select count(*) from orders where status = 'pending'").await, 1);
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 39);
}

/// Sends the form to both replicas at once; both lead to `place`.
async fn send_twice(shop: &TestShop, who: &Visitor, path: &str, form: &str, place: &str) {
    let other = Visitor { http: who.http.clone(), base: shop.replicas[1].base_url.clone() };
    let (first, second) = tokio::join!(who.post(path, form), other.post(path, form));
    for page in [first, second] {
        assert_eq!((page.status.as_u16(), page.location.as_str()), (303, place), "{}", page.text);
    }
}
