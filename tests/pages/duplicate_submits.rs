//! One form, sent more than once, is one order, one payment, one top-up.

use std::time::Duration;

use holdfast::shop::UserId;
use holdfast_lock::{AcquireOutcome, AcquireRequest, LockKind, Locks, Redis, Settings, Wait};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::common::{Shop, services};
use crate::visitor::{Page, Visitor};

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_forms_make_one_order() {
    let shop = Shop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 2).await;
    let form = format!("csrf={csrf}&token={token}");
    let mut copies = JoinSet::new();
    for copy in 0..6 {
        // Cookies know no ports: the jar is good for both replicas.
        let base = shop.replicas[copy % 2].base_url.clone();
        let visitor = Visitor { http: alice.http.clone(), base };
        let request = visitor.form_request("/orders", &form);
        copies.spawn(async move { Page::read(request.send().await.unwrap()).await });
    }
    let answers = copies.join_all().await;
    assert!(answers.iter().all(|page| page.status == 303), "{}", answers[0].text);
    assert!(answers.iter().all(|page| page.location == answers[0].location));
    assert_eq!(alice.get(&answers[0].location).await.status, 200);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    assert_eq!(shop.item_audit("deadbolt").await["sold"], 2);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_form_leads_to_its_order() {
    let shop = Shop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let order = alice.order(&token, &csrf).await.location;
    assert!(alice.get("/basket").await.words().contains("Nothing is in it"));
    assert_eq!(alice.order(&token, &csrf).await.location, order);

    let (next, _) = alice.fill_basket("key-ring", 1).await;
    assert_ne!(next, token);
    assert_eq!(alice.order(&token, &csrf).await.location, order);
    // The basket that was filled since is still there, and is another order.
    assert_ne!(alice.order(&next, &csrf).await.location, order);
    assert_eq!(shop.number("select count(*) from orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_changed_basket_orders_nothing() {
    let shop = Shop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (old, csrf) = alice.fill_basket("deadbolt", 1).await;
    alice.fill_basket("deadbolt", 1).await;
    let refused = alice.order(&old, &csrf).await;
    assert_eq!(refused.status, 409);
    assert!(refused.words().contains("It is no longer what that page showed; nothing was ordered"));
    assert!(!refused.text.contains("idempotency-key-mismatch"));
    assert!(refused.text.contains("<a href=\"/basket\" aria-current=\"page\">"));
    assert!(refused.text.contains("<a href=\"/orders\">"), "not marked");
    assert_eq!(shop.number("select count(*) from orders").await, 0);
    // The page that says so can be ordered from.
    assert_eq!(alice.order(&refused.field("token"), &csrf).await.status, 303);
    assert_eq!(shop.item_audit("deadbolt").await["sold"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_buyer_lock_times_out_with_page() {
    let shop = Shop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let locks =
        Locks::new(redis, Settings { key_prefix: shop.prefix.clone(), ..Settings::default() })
            .unwrap();
    let id = sqlx::query_scalar("select id from users where name = 'alice'");
    let user = UserId(id.fetch_one(&shop.pool).await.unwrap());
    let ask = AcquireRequest {
        kind: LockKind::Owner,
        wait: Wait::Try,
        ttl: Some(Duration::from_secs(60)),
        deadline: Instant::now() + Duration::from_secs(5),
        keys: &[user.buyer_lock_key()],
    };
    let AcquireOutcome::Acquired(held) = locks.acquire(ask).await.unwrap() else {
        panic!("it is free")
    };
    let refused = alice.order(&token, &csrf).await;
    assert_eq!(refused.status, 423);
    assert!(refused.words().contains("Somebody else is changing this"));
    // Another copy may be at work, so the token stays: what is sent next is the same order.
    assert_eq!(refused.field("token"), token);
    held.release().await;
    assert_eq!(alice.order(&token, &csrf).await.status, 303);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_order_gets_a_new_token() {
    let shop = Shop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("last-lantern", 1).await;
    let bob = shop.sign_in("bob").await;
    shop.place_order(&bob, "last-lantern", 1).await;
    let refused = alice.order(&token, &csrf).await;
    assert_eq!(refused.status, 409);
    assert!(refused.words().contains("Not enough on the shelf"));
    assert!(refused.words().contains("Sold out. Take it out of the basket."));
    let page = alice.get("/basket").await;
    assert_eq!(refused.field("token"), page.field("token"));
    assert_ne!(page.field("token"), token);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_payment_and_top_up_execute_once() {
    let shop = Shop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("strongbox", 6).await;
    let order = alice.order(&token, &csrf).await.location;
    let key = alice.get(&order).await.field("key");
    let pay = format!("csrf={csrf}&key={key}");
    let short = alice.post(&format!("{order}/pay"), &pay).await;
    assert_eq!(short.status, 402);
    assert!(short.words().contains("1,134.00 is due, 1,000.00 is on the account"));

    let account = alice.get("/account").await;
    let top_up = format!("csrf={csrf}&key={}&amount=500.50", account.field("key"));
    send_twice(&shop, &alice, "/account/top-ups", &top_up, "/account").await;
    assert!(alice.get("/account").await.words().contains("1,500.50 on your account"));
    let pay = format!("csrf={csrf}&key={}", short.field("key"));
    send_twice(&shop, &alice, &format!("{order}/pay"), &pay, &order).await;
    assert!(alice.get("/account").await.words().contains("366.50 on your account"));
    assert_eq!(shop.number("select count(*) from balance_ledger where delta < 0").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_restock_cancel_and_refund_execute_once() {
    let shop = Shop::start(2).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let admin = Visitor::signed_in(&shop, "admin").await;

    let item = admin.get("/items/deadbolt").await;
    let restock = format!("csrf={}&key={}&delta=5&reason=restock", item.csrf(), item.field("key"));
    send_twice(&shop, &admin, "/items/deadbolt/stock", &restock, "/items/deadbolt").await;
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 45);
    // The same form with another number is another command: it is not taken for done.
    let other = restock.replace("delta=5", "delta=6");
    assert_eq!(admin.post("/items/deadbolt/stock", &other).await.status, 422);
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 45);

    for done in ["cancel", "refund"] {
        let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
        let order = alice.order(&token, &csrf).await.location;
        if done == "refund" {
            let pay = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
            assert_eq!(alice.post(&format!("{order}/pay"), &pay).await.status, 303);
        }
        let form = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
        send_twice(&shop, &alice, &format!("{order}/{done}"), &form, &order).await;
        assert_eq!(shop.item_audit("deadbolt").await["stock"], 45, "{done}");
    }
    assert_eq!(shop.number("select count(*) from balance_ledger where reason = 'refund'").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_without_key_changes_nothing() {
    let shop = Shop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let (token, csrf) = admin.fill_basket("deadbolt", 1).await;
    let order = admin.order(&token, &csrf).await.location;
    for (path, form) in [
        (format!("{order}/pay"), ""),
        (format!("{order}/cancel"), ""),
        (format!("{order}/refund"), ""),
        ("/account/top-ups".to_owned(), "amount=5"),
        ("/items/deadbolt/stock".to_owned(), "delta=5&reason=restock"),
    ] {
        let rejected = admin.post(&path, &format!("csrf={csrf}&{form}")).await;
        assert_eq!(rejected.status, 422, "{path}");
        assert!(rejected.words().contains("Key: it is missing."), "{}", rejected.words());
    }
    assert_eq!(shop.number("select count(*) from orders where status = 'pending'").await, 1);
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 39);
}

/// Sends the form to both replicas at once; both lead to `place`.
async fn send_twice(shop: &Shop, who: &Visitor, path: &str, form: &str, place: &str) {
    let other = Visitor { http: who.http.clone(), base: shop.replicas[1].base_url.clone() };
    let (first, second) = tokio::join!(who.post(path, form), other.post(path, form));
    for page in [first, second] {
        assert_eq!((page.status.as_u16(), page.location.as_str()), (303, place), "{}", page.text);
    }
}
