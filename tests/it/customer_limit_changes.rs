//! The admin sets, removes and mistypes the limit per customer; earlier purchases count, and an
//! order that read an older limit is not placed by it.

use holdfast_shop::command::ReadSet;
use holdfast_shop::store::read::{self, ReadRequest};
use holdfast_shop::{Sku, UserId};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::common::Shop;
use crate::common::requests::{Answer as _, send};
use crate::customer_limits::{LIMIT, under};

#[tokio::test(flavor = "multi_thread")]
async fn changed_limit_counts_earlier_purchases() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let sku = shop.shop_item(50, 100).await;
    let item = shop.read(&alice, &format!("/api/items/{sku}")).await;
    assert_eq!(item.as_object().unwrap().len(), 4, "without a limit there is no field: {item}");
    shop.place_order(&alice, &sku, 4).await;
    let admin = shop.sign_in("admin").await;
    let path = format!("/api/items/{sku}/limit");
    for (limit, status) in [(json!(3.5), 422), (json!(3.0), 200)] {
        let set = shop.request(&admin, Method::PUT, 0, &path);
        let set = set.json(&json!({ "limit_per_user": limit })).send().await.unwrap();
        assert_eq!(set.status(), status, "{limit}");
    }
    let set = shop.set_limit(&sku, 3).await;
    assert_eq!(set["limit_per_user"], 3);
    assert_eq!(shop.read(&alice, &format!("/api/items/{sku}")).await, set);
    let all = shop.read(&alice, "/api/items").await;
    assert!(all["items"].as_array().unwrap().contains(&set), "{all}");
    let (status, kind, body) = shop.order(&alice, 0, &sku, 1).outcome().await;
    assert_eq!((status, kind.as_str(), &body["already"]), (409, "limit-reached", &json!(4)));
    shop.place_order(&bob, &sku, 3).await;
    // Earlier purchases stay, and each line records the limit by which it was sold.
    shop.set_limit(&sku, 1).await;
    shop.assert_sound().await;
    shop.set_limit(&sku, 5).await;
    shop.place_order(&alice, &sku, 1).await;
    shop.order(&alice, 0, &sku, 1).refuses(409, LIMIT).await;
    let removed = shop.set_limit(&sku, Value::Null).await;
    assert_eq!(removed.as_object().unwrap().len(), 4, "{removed}");
    shop.place_order(&alice, &sku, 9).await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_uses_the_limit_at_commit() {
    let shop = Shop::start(2).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    for strategy in ["version"] {
        for old in [Value::Null, json!(9)] {
            let sku = shop.shop_item(50, 100).await;
            shop.set_limit(&sku, old).await;
            shop.place_order(&alice, &sku, 2).await;
            let order = under(strategy)(shop.order(&alice, 1, &sku, 1));
            let held = shop.pause_after_read(&admin, 1, order).await;
            shop.set_limit(&sku, 2).await;
            let (status, rejected) = shop.resume_until_response(&admin, 1, held).await;
            assert_eq!(status, 409, "{strategy}: {rejected}");
            assert_eq!(rejected["type"], "/problems/limit-reached", "{strategy}: {rejected}");
        }
    }
    // Where an order excludes others from its read on, the change waits for it.
    for strategy in ["batched", "fenced", "row-lock", "atomic"] {
        let sku = shop.shop_item(50, 100).await;
        let order = under(strategy)(shop.order(&alice, 1, &sku, 1));
        let held = shop.pause_after_read(&admin, 1, order).await;
        let set = send(shop.limit(&admin, 0, &sku, &json!(1)));
        assert_eq!(shop.resume_until_response(&admin, 1, held).await.0, 201, "{strategy}");
        set.gives(200).await;
        shop.order(&alice, 0, &sku, 1).refuses(409, LIMIT).await;
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_limit_is_rejected_with_range() {
    let shop = Shop::start(1).await;
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
        let post = |path: &str, json: &Value| {
            shop.request(&admin, Method::POST, 0, path).json(json).send()
        };
        for response in [
            post("/api/items", &item).await.unwrap(),
            post("/api/lab/items", &lab).await.unwrap(),
            shop.limit(&admin, 0, "deadbolt", &bad).send().await.unwrap(),
        ] {
            let rejected = response.gives(422).await;
            assert_eq!(rejected["errors"][0]["field"], field, "{rejected}");
            if bad.is_i64() {
                let detail = rejected["errors"][0]["detail"].as_str().unwrap();
                assert!(detail.contains("1 to 1000"), "{rejected}");
            }
        }
    }
    let put = |path: &str, json: Value| {
        shop.request(&admin, Method::PUT, 0, &format!("/api/items/{path}/limit")).json(&json).send()
    };
    // A missing field does not remove the limit.
    put("deadbolt", json!({})).await.unwrap().refuses(422, "invalid-request").await;
    let unknown = put("nothing", json!({ "limit_per_user": 1 })).await.unwrap();
    unknown.refuses(404, "not-found").await;
    shop.limit(&alice, 0, "deadbolt", &json!(1)).refuses(403, "forbidden").await;
    let anonymous = shop.http.put(shop.url(0, "/api/items/deadbolt/limit"));
    anonymous.json(&json!({ "limit_per_user": 1 })).refuses(401, "unauthenticated").await;
    assert_eq!(shop.number("select count(limit_per_user) from items").await, 1, "the seeded one");
}

/// The plan is the same for all customers: one with many purchases must not slow down the others.
#[tokio::test(flavor = "multi_thread")]
async fn purchases_are_counted_by_index() {
    let shop = Shop::without_replicas().await;
    let [frequent, new] = ["alice", "bob"];
    let sku = Sku::try_from("deadbolt".to_owned()).unwrap();
    let buy = "insert into order_lines
                   (order_id, sku, quantity, unit_price_cents, counts_for, entry_seq)
               select gen_random_uuid(), $1, 1, 100, (select id from users where name = $2), n
                 from generate_series(1, 60000) n";
    let buy = sqlx::query(buy).bind(sku.as_str()).bind(frequent);
    buy.execute(&shop.pool).await.unwrap();
    shop.pool.execute("analyze order_lines").await.unwrap();
    shop.pool.execute("update items set limit_per_user = 5 where sku = 'deadbolt'").await.unwrap();

    let mut buyers = Vec::new();
    for name in [frequent, new] {
        let id = sqlx::query_scalar("select id from users where name = $1").bind(name);
        buyers.push(UserId(id.fetch_one(&shop.pool).await.unwrap()));
    }
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
