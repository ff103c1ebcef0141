//! The admin sets, removes and mistypes the limit per customer; earlier purchases count, and an
//! order that read an older limit is not placed by it.

use holdfast_shop::command::ReadSet;
use holdfast_shop::store::read::{self, ReadRequest};
use holdfast_shop::{Sku, UserId};
use holdfast_testkit::TestShop;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::customer_limits::{LIMIT, under};

#[tokio::test(flavor = "multi_thread")]
async fn changed_limit_counts_earlier_purchases() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let sku = shop.shop_item(50, 100).await;
    let item = alice.reads(&format!("/api/items/{sku}")).await;
    assert_eq!(item.as_object().unwrap().len(), 4, "without a limit there is no field: {item}");
    alice.orders(&sku, 4).ok().await;
    let admin = shop.sign_in("admin").await;
    admin.sets_limit(&sku, 3.5).succeeds(422).await;
    admin.sets_limit(&sku, 3.0).succeeds(200).await;
    let set = shop.set_limit(&sku, 3).await;
    assert_eq!(set["limit_per_user"], 3);
    assert_eq!(alice.reads(&format!("/api/items/{sku}")).await, set);
    let all = alice.reads("/api/items").await;
    assert!(all["items"].as_array().unwrap().contains(&set), "{all}");
    let rejected = alice.orders(&sku, 1).fails(409, LIMIT).await;
    assert_eq!(rejected["already"], 4);
    bob.orders(&sku, 3).ok().await;
    // Earlier purchases stay, and each line records the limit by which it was sold.
    shop.set_limit(&sku, 1).await;
    shop.assert_sound().await;
    shop.set_limit(&sku, 5).await;
    alice.orders(&sku, 1).ok().await;
    alice.orders(&sku, 1).fails(409, LIMIT).await;
    let removed = shop.set_limit(&sku, Value::Null).await;
    assert_eq!(removed.as_object().unwrap().len(), 4, "{removed}");
    alice.orders(&sku, 9).ok().await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_uses_the_limit_at_commit() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    for strategy in ["version"] {
        for old in [Value::Null, json!(9)] {
            let sku = shop.shop_item(50, 100).await;
            shop.set_limit(&sku, old).await;
            alice.orders(&sku, 2).ok().await;
            let order = under(strategy)(alice.at(1).orders(&sku, 1));
            let paused = shop.pause(&admin, order, "read").await;
            shop.set_limit(&sku, 2).await;
            shop.resume(&admin, paused).await.fails(409, LIMIT);
        }
    }
    // Where an order excludes others from its read on, the change waits for it.
    for strategy in ["batched", "fenced", "row-lock", "atomic"] {
        let sku = shop.shop_item(50, 100).await;
        let order = under(strategy)(alice.at(1).orders(&sku, 1));
        let paused = shop.pause(&admin, order, "read").await;
        let set = admin.sets_limit(&sku, 1).send();
        shop.resume(&admin, paused).await.succeeds(201);
        set.succeeds(200).await;
        alice.orders(&sku, 1).fails(409, LIMIT).await;
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_limit_is_rejected_with_range() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    for (bad, field) in [
        (json!(0), "limit_per_user"),
        (json!(-1), "limit_per_user"),
        (json!(1_001), "limit_per_user"),
        (json!(i64::MAX), "limit_per_user"),
        (json!(1.5), "limit_per_user"),
        (json!("2"), "limit_per_user"),
    ] {
        let item = json!({ "sku": "new", "name": "New", "price_cents": 1, "stock": 1,
                           "limit_per_user": bad });
        let lab = json!({ "stock": 1, "limit_per_user": bad });
        for call in [
            admin.creates_item(&item),
            admin.creates_lab_item(&lab),
            admin.sets_limit("deadbolt", bad.clone()),
        ] {
            let rejected = call.succeeds(422).await;
            assert_eq!(rejected["errors"][0]["field"], field, "{rejected}");
            if bad.is_i64() {
                let detail = rejected["errors"][0]["detail"].as_str().unwrap();
                assert!(detail.contains("1 to 1000"), "{rejected}");
            }
        }
    }

    // A missing field does not remove the limit.
    admin.sets_limit("deadbolt", 1).json(&json!({})).fails(422, "invalid-request").await;
    admin.sets_limit("nothing", 1).fails(404, "not-found").await;
    alice.sets_limit("deadbolt", 1).fails(403, "forbidden").await;
    shop.anonymous().sets_limit("deadbolt", 1).fails(401, "unauthenticated").await;
    assert_eq!(shop.number("select count(limit_per_user) from items").await, 1, "the seeded one");
}

/// The plan is the same for all customers: one with many purchases must not slow down the others.
#[tokio::test(flavor = "multi_thread")]
async fn purchases_are_counted_by_index() {
    let shop = TestShop::without_replicas().await;
    let [frequent, new] = ["alice", "bob"];
    let sku = Sku::try_from("deadbolt".to_owned()).unwrap();
    let buy = "insert into order_lines
                   (order_id, sku, quantity, unit_price_cents, name, counts_for, entry_seq)
               select gen_random_uuid(), $1, 1, 100, 'Bolt', (select id from users where name = $2), n
                 from generate_series(1, 60000) n";
    let buy = sqlx::query(buy).bind(sku.as_str()).bind(frequent);
    buy.execute(&shop.pool).await.unwrap();
    shop.pool.execute("analyze order_lines").await.unwrap();
    shop.pool.execute("update items set limit_per_user = 5 where sku = 'deadbolt'").await.unwrap();

    let buyers = vec![shop.user_id(frequent).await, shop.user_id(new).await];
    let mut tx = shop.pool.begin().await.unwrap();
    tx.execute("set local plan_cache_mode = force_generic_plan").await.unwrap();
    let request = ReadRequest {
        reads: ReadSet { items: vec![sku.clone()], ..ReadSet::default() },
        buyers: buyers.clone(),
        ..ReadRequest::default()
    };
    let read = read::read(&mut tx, &request).await.unwrap().state.purchased;
    let limited: Vec<(Sku, UserId)> = buyers.iter().map(|user| (sku.clone(), *user)).collect();
    let counted = read::count_purchases(&mut tx, &limited).await.unwrap();
    for purchased in [read, counted] {
        // More than any limit and any quantity: the count stops there.
        assert_eq!(purchased[&limited[0]], 2_001);
        assert_eq!(purchased[&limited[1]], 0);
    }
    let scans = "select seq_scan from pg_stat_xact_user_tables where relname = 'order_lines'";
    let scans: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(scans, 0);
}
