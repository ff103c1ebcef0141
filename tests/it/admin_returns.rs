//! An admin cancels and refunds the orders of others: with a reason, the whole order, to the
//! customer's account, and once beside the customer and other admins.

use holdfast_testkit::{TestShop, User, assert_has, fresh_key, id_of};
use serde_json::{Value, json};

fn because(reason: &str) -> Value {
    json!({ "reason": reason })
}

async fn balance(who: &User) -> Value {
    who.reads("/api/me").await["balance_cents"].clone()
}

async fn log(admin: &User) -> Vec<Value> {
    admin.reads("/api/admin/log").await["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_returns_the_orders_of_others() {
    let shop = TestShop::start(1).await;
    let [alice, bob, admin] =
        [shop.sign_in("alice").await, shop.sign_in("bob").await, shop.sign_in("admin").await];
    for (action, status, total) in [("cancel", "cancelled", 0), ("refund", "refunded", 9_800)] {
        let order = alice.orders_all(&[("deadbolt", 2), ("key-ring", 1)]).ok().await;
        if action == "refund" {
            alice.pays(&order).ok().await;
        }
        let call = |who: &User| who.acts(&order, action);

        // Whoever is no admin is not even told that there is such an order.
        call(&bob).fails(404, "not-found").await;
        call(&bob).json(&because("not mine")).fails(404, "not-found").await;
        call(&alice).json(&because("mine")).fails(422, "invalid-request").await;
        let rejected = call(&admin).fails(422, "invalid-request").await;
        assert_eq!(rejected["errors"][0]["field"], "reason", "{rejected}");
        for bad in [" ", "two\nlines", &"x".repeat(201)] {
            call(&admin).json(&because(bad)).fails(422, "invalid-request").await;
        }
        call(&admin).json(&json!({ "quantity": 1 })).fails(422, "invalid-request").await;
        let expected = if total == 0 { "pending" } else { "paid" };
        assert_eq!(alice.order(&order).await["status"], expected, "nothing was changed");

        let returned = call(&admin).json(&because(" arrived broken ")).ok().await;
        assert_has(&returned["order"], json!({ "id": id_of(&order), "status": status }));
        assert_has(&returned["stock"]["deadbolt"], json!({ "delta": 2, "after": 40 }));
        assert_eq!(alice.order(&order).await["status"], status);
        assert_eq!([balance(&alice).await, balance(&admin).await], [100_000, 100_000]);

        let entry = &log(&admin).await[0];
        assert_has(
            entry,
            json!({ "admin": "admin", "action": format!("{action}-order"), "user": "alice",
                    "subject": id_of(&order), "before": { "status": expected },
                    "after": { "status": status, "reason": "arrived broken" } }),
        );
        let history = admin.reads(&format!("/api/admin/orders/{}", id_of(&order))).await;
        assert_eq!(history["log"], json!([entry]), "{history}");
        call(&admin).json(&because("again")).fails(409, "order-state").await;
        call(&alice).fails(409, "order-state").await;
    }
    let nowhere = "0190a6e4-0000-7000-8000-000000000000";
    let none = admin.refunds(nowhere);
    none.json(&because("lost")).fails(404, "not-found").await;

    // An admin's own order needs no reason; with one it is an act of the admin, and in the log.
    for (reason, entries) in [(json!({}), 2), (because("a test"), 3)] {
        let own = admin.orders("deadbolt", 1).ok().await;
        admin.cancels(&own).json(&reason).ok().await;
        assert_eq!(log(&admin).await.len(), entries);
    }
    // The lab's money goes back to the lab's account.
    let lab = shop.lab_item(5).await;
    let order = alice.orders(&lab, 2).ok().await;
    alice.pays(&order).ok().await;
    admin.refunds(&order).json(&because("a lesson")).ok().await;
    assert_eq!(alice.order(&order).await["status"], "refunded");
    assert_eq!((balance(&alice).await, shop.stock(&lab).await), (100_000.into(), 5));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_an_admin_is_no_one_elses() {
    let shop = TestShop::start(2).await;
    let [alice, admin, bob] =
        [shop.sign_in("alice").await, shop.sign_in("admin").await, shop.promoted("bob").await];
    let key = fresh_key();
    let refund = |who: &User, order: &Value, reason: &str| {
        who.refunds(order).key(&key).json(&because(reason))
    };
    let (first, second) = (alice.orders("deadbolt", 1).ok().await, alice.orders("deadbolt", 1));
    let second = second.ok().await;
    for order in [&first, &second] {
        alice.pays(order).ok().await;
    }

    // The customer's key is not an admin's, whose request would otherwise get the customer's
    // response, or be rejected as another payload.
    alice.refunds(&first).key(&key).ok().await;
    refund(&admin, &first, "late").fails(409, "order-state").await;
    let done = refund(&admin, &second, "late").await;
    assert_eq!((done.status, done.is_replayed()), (200, false), "{done}");
    refund(&admin.at(1), &second, "late").await.replays(&done);
    refund(&admin.at(1), &second, "broken").fails(422, "idempotency-key-mismatch").await;
    refund(&bob, &second, "late").fails(409, "order-state").await;
    alice.refunds(&second).key(&key).fails(409, "order-state").await;

    assert_eq!(log(&admin).await.len(), 1);
    assert_eq!((shop.stock("deadbolt").await, balance(&alice).await), (40, 100_000.into()));
    shop.assert_sound().await;
}

/// The customer and two admins, at both replicas: one of them returns units and money.
#[tokio::test(flavor = "multi_thread")]
async fn customer_and_admins_at_once_return_an_order_once() {
    for strategy in ["batched", "atomic", "row-lock"] {
        let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", strategy)]).await;
        let [alice, admin, bob] =
            [shop.sign_in("alice").await, shop.sign_in("admin").await, shop.promoted("bob").await];
        let mut by_admin = 0;
        for action in ["cancel", "refund"].into_iter().cycle().take(10) {
            let order = alice.orders("deadbolt", 2).ok().await;
            if action == "refund" {
                alice.pays(&order).ok().await;
            }
            let reason = because("sold twice");
            let (customer, one, other) = tokio::join!(
                alice.acts(&order, action).into_future(),
                admin.at(1).acts(&order, action).json(&reason).into_future(),
                bob.acts(&order, action).json(&reason).into_future(),
            );
            let replies = [&customer, &one, &other];
            let done = replies.iter().filter(|reply| reply.status == 200).count();
            assert_eq!(done, 1, "{strategy} {action}: {customer} {one} {other}");
            for reply in replies.into_iter().filter(|reply| reply.status != 200) {
                assert_eq!(reply.outcome(), (409, "order-state"), "{strategy} {action}: {reply}");
            }
            by_admin += i64::from(customer.status != 200);
            assert_eq!((shop.stock("deadbolt").await, balance(&alice).await), (40, 100_000.into()));
        }
        assert_eq!(shop.number("select count(*) from admin_log").await, by_admin);
        let returns = "select count(*) from stock_ledger where reason in ('cancel', 'refund')";
        assert_eq!(shop.number(returns).await, 10);
        shop.assert_sound().await;
    }
}
