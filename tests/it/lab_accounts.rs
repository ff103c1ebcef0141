//! Money of the lab stays in the lab: its orders are paid from an account of their own.

use futures_util::future::join_all;
use holdfast_shop::store::purge_lab_item;
use holdfast_shop::{Sku, UserId};
use holdfast_testkit::{Call, TestShop, User, until};
use serde_json::json;
use uuid::Uuid;

async fn balances(who: &User) -> [i64; 2] {
    let me = who.reads("/api/me").await;
    ["balance_cents", "lab_balance_cents"].map(|name| me[name].as_i64().unwrap())
}

#[tokio::test]
async fn minted_lab_money_buys_nothing_in_shop() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(10).await;
    assert_eq!(balances(&alice).await, [100_000, 100_000]);
    let mut orders = Vec::new();
    for _ in 0..2 {
        orders.push(alice.orders(&sku, 1).ok().await);
    }
    // Both read the same balance, and each refund adds its price.
    let pay = |n: usize| alice.pays(&orders[n]).lock("none");
    let paid = [0, 1].map(|n| pay(n).pause("read").send());
    shop.until_paused_count(&admin, 2, "read").await;
    shop.resume_all(&admin).await;
    for sent in paid {
        sent.succeeds(200).await;
    }
    for order in &orders {
        alice.at(1).refunds(order).ok().await;
    }
    assert_eq!(balances(&alice).await, [100_000, 100_100], "the lab minted 1.00");
    for (price_cents, status) in [(100_001, 402), (100_000, 200)] {
        let own = shop.shop_item(10, price_cents).await;
        let order = alice.orders(&own, 1).ok().await;
        let paid = alice.pays(&order).await;
        assert_eq!(paid.status, status, "{price_cents} of 100,000 cents");
    }
    assert_eq!(balances(&alice).await, [0, 100_100]);
    shop.assert_sound().await;
    let lab_accounts = "select count(*) from accounts where kind = 'lab'";
    assert_eq!(shop.number(lab_accounts).await, 1, "only the lab account has another kind");
}

/// The refund looks up the payer before the payment, and executes after it.
#[tokio::test]
async fn early_refund_keeps_lab_money_in_lab() {
    let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", "fenced")]).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(10).await;
    let order = alice.orders(&sku, 1).ok().await;
    // Holds the lock of the item, which the refund needs and the payment does not.
    let holder = alice.orders(&sku, 1).pause("held").send();
    shop.until_paused_count(&admin, 1, "held").await;
    let refund = alice.at(1).refunds(&order).send();
    let key = format!("{}lock:{{sku:{sku}}}", shop.prefix);
    until("the refund waits", async || {
        let locks = admin.reads("/api/locks").await;
        let held = locks.as_array().unwrap().iter().find(|lock| lock["key"] == key);
        held.is_some_and(|held| held["waiting"] == 1)
    })
    .await;
    alice.pays(&order).ok().await;
    shop.resume_all(&admin).await;
    holder.succeeds(201).await;
    refund.succeeds(200).await;
    assert_eq!(balances(&alice).await, [100_000, 100_000]);
    shop.assert_sound().await;
}

/// A refund of units locks the account's row, and payments of this shop its key in Redis: neither
/// would exclude the other.
#[tokio::test]
async fn refund_of_units_needs_payments_that_postgres_isolates() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK", "owner")]).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let item = admin.creates_lab_item(&json!({ "stock": 5, "in_units": true })).ok().await;
    let order = alice.orders(item["sku"].as_str().unwrap(), 1).lock("units").ok().await;
    alice.pays(&order).ok().await;
    let problem = alice.refunds(&order).fails(403, "forbidden").await;
    assert!(problem.to_string().contains("Postgres isolates payments"), "{problem}");
    assert_eq!(balances(&alice).await, [100_000, 99_900]);
    shop.assert_sound().await;
}

#[tokio::test]
async fn failed_lab_payment_leaves_audit_sound() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let expensive = json!({ "stock": 5, "price_cents": 100_001 });
    let item = admin.creates_lab_item(&expensive).succeeds(201).await;
    let sku = item["sku"].as_str().unwrap();
    let order = alice.orders(sku, 1).ok().await;
    let problem = alice.pays(&order).lock("none").fails(402, "insufficient-funds").await;
    assert!(problem["detail"].as_str().unwrap().contains("lab account"), "{problem}");
    alice.cancels(&order).ok().await;
    let sku = Sku::try_from(sku.to_owned()).unwrap();
    assert!(purge_lab_item(&shop.pool.clone().into(), &sku, sku.as_str()).await.unwrap());
    assert_eq!(balances(&alice).await, [100_000, 100_000]);
    shop.assert_sound().await;
}

#[tokio::test]
async fn order_mixes_no_lab_and_shop_items() {
    let shop = TestShop::start(1).await;
    let (alice, sku) = (shop.sign_in("alice").await, shop.lab_item(5).await);
    let mixed = alice.orders_all(&[(&sku, 1), ("deadbolt", 1)]);
    let problem = mixed.fails(422, "invalid-request").await;
    let why = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(why.contains("not both") && why.contains("deadbolt"), "{problem}");
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn first_payments_at_once_open_one_account() {
    let shop = TestShop::start(2).await;
    let (alice, sku) = (shop.sign_in("alice").await, shop.lab_item(20).await);
    let mut orders = Vec::new();
    for _ in 0..8 {
        orders.push(alice.orders(&sku, 1).ok().await);
    }
    let paid = orders.iter().enumerate().map(|(n, order)| alice.at(n % 2).pays(order));
    for paid in join_all(paid.map(Call::send)).await {
        paid.succeeds(200);
    }
    assert_eq!(balances(&alice).await, [100_000, 100_000 - 8 * 100]);
    assert_eq!(shop.number("select count(*) from accounts where kind = 'lab'").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn lab_account_cannot_sign_in() {
    let shop = TestShop::start(1).await;
    let (alice, sku) = (shop.sign_in("alice").await, shop.lab_item(5).await);
    let order = alice.orders(&sku, 1).ok().await;
    alice.pays(&order).ok().await;
    let owner = shop.user_id("alice").await;
    let (id, name): (Uuid, String) =
        sqlx::query_as("select id, name from users where lab_account_of = $1")
            .bind(owner.0)
            .fetch_one(&shop.pool)
            .await
            .unwrap();
    assert_eq!(UserId(id), owner.lab_account());
    for password in ["", &name, "a password of mine"] {
        let credentials = json!({ "user": name, "password": password });
        let sent = shop.anonymous().post("/api/sessions").json(&credentials);
        sent.fails(401, "unauthenticated").await;
    }
    let taken = json!({ "user": name, "password": "a password of mine" });
    shop.anonymous().post("/api/users").json(&taken).fails(422, "invalid-request").await;
    let pool = shop.pool.clone().into();
    let password = "a password of mine".to_owned();
    assert!(holdfast_shop::users::set_password(&pool, &name, password, 8).await.is_err());
    assert!(holdfast_shop::users::enable(&pool, &name).await.is_err());
}
