//! The search of all users' orders, for admins.

use holdfast_shop::query::order_search::{self, IdPart, MAX_SCANNED, OrderSearch, UserPart};
use holdfast_shop::{OrderId, RequestContext, engine};
use holdfast_testkit::{TestShop, User, id_of};
use serde_json::{Value, json};
use sqlx::Executor as _;
use uuid::Uuid;

/// 6,000 orders of bob, newer than all others.
const NEWER_ORDERS: &str = "
    insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
    select ('ffff0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
           (select id from users where name = 'bob'), 'cancelled', 0, n::text, now(), now()
      from generate_series(1, 6000) n";

async fn found(admin: &User, query: &str) -> Vec<String> {
    let list = admin.reads(&format!("/api/admin/orders?{query}")).await;
    let found = list["items"].as_array().unwrap().iter();
    found.map(|found| id_of(&found["order"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_found_by_id_user_item_and_status() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let admin = shop.sign_in("admin").await;
    let lab_item = shop.lab_item(5).await;
    let paid = alice.orders_all(&[("deadbolt", 2), ("key-ring", 1)]).ok().await;
    alice.pays(&paid).ok().await;
    let pending = bob.orders("key-ring", 1).ok().await;
    let of_lab = bob.orders(&lab_item, 1).ok().await;
    let [paid, pending, of_lab] = [&paid, &pending, &of_lab].map(id_of);

    let end = &paid[24..];
    for (query, expected) in [
        (String::new(), vec![&pending, &paid]),
        ("lab=true".to_owned(), vec![&of_lab, &pending, &paid]),
        (format!("id={paid}"), vec![&paid]),
        (format!("id={}", paid.to_uppercase()), vec![&paid]),
        (format!("id={end}"), vec![&paid]),
        (format!("id=%23{end}"), vec![&paid]),
        (format!("id={}", &paid[14..23]), vec![&paid]),
        (format!("id={end}&user=bob"), vec![]),
        (format!("id={paid}&status=pending"), vec![]),
        ("user=alice".to_owned(), vec![&paid]),
        ("user=LIC".to_owned(), vec![&paid]),
        ("user=b&lab=true".to_owned(), vec![&of_lab, &pending]),
        ("sku=key-ring".to_owned(), vec![&pending, &paid]),
        ("sku=ey-r".to_owned(), vec![&pending, &paid]),
        ("sku=single%20CYL".to_owned(), vec![&paid]),
        ("sku=%E9%97%A9%E9%94%81".to_owned(), vec![&paid]),
        ("sku=%25&user=_".to_owned(), vec![]),
        ("sku=key-ring&status=paid".to_owned(), vec![&paid]),
        ("status=refunded".to_owned(), vec![]),
        ("limit=1".to_owned(), vec![&pending]),
        (format!("after={pending}"), vec![&paid]),
    ] {
        let expected: Vec<String> = expected.into_iter().cloned().collect();
        assert_eq!(found(&admin, &query).await, expected, "{query}");
    }
    // Orders are found by the names as they were sold.
    shop.execute("update items set name = 'Red toaster' where sku = 'deadbolt'").await;
    assert_eq!(found(&admin, "sku=single%20CYL").await, [paid.as_str()]);
    assert_eq!(found(&admin, "sku=toaster").await, [""; 0]);
    for none in ["user=nemo", "user=%00", "sku=nothing", "sku=A%20b", "id=xyz", "id=%00"] {
        assert_eq!(found(&admin, none).await, [""; 0], "{none}");
    }
    admin.get("/api/admin/orders?status=lost").fails(422, "invalid-request").await;
    let first = admin.get("/api/admin/orders?limit=1&sku=key-ring").await;
    assert_eq!(
        first.next_page().unwrap(),
        format!("/api/admin/orders?after={pending}&limit=1&sku=key-ring")
    );

    let history = admin.reads(&format!("/api/admin/orders/{paid}")).await;
    assert_eq!((&history["user"], &history["order"]["status"]), (&json!("alice"), &json!("paid")));
    let changes = |list: &Value| -> Vec<i64> {
        list.as_array().unwrap().iter().map(|entry| entry["delta"].as_i64().unwrap()).collect()
    };
    let stock: Vec<Value> = history["stock"].as_array().unwrap().clone();
    let entries = Value::from_iter(stock.iter().map(|it| it["entry"].clone()));
    assert_eq!((stock[0]["sku"].as_str(), changes(&entries)), (Some("deadbolt"), vec![-2, -1]));
    let total = history["order"]["total_cents"].as_i64().unwrap();
    assert_eq!(changes(&history["balance"]), [-total]);
    for unknown in ["0190a6e4-0000-7000-8000-000000000000", "1"] {
        let problem = admin.get(&format!("/api/admin/orders/{unknown}")).fails(404, "not-found");
        assert_eq!(problem.await["detail"], format!("there is no order {unknown}"));
    }
}

/// Also before the units of a due order were returned.
#[tokio::test(flavor = "multi_thread")]
async fn orders_that_were_not_paid_in_time_are_found() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let mut placed = Vec::new();
    for sku in ["deadbolt", "key-ring", "bike-chain", "strongbox"] {
        placed.push(id_of(&alice.orders(sku, 1).ok().await));
    }
    let [pending, due, expired, cancelled] = [0, 1, 2, 3].map(|at| placed[at].clone());
    alice.cancels(&cancelled).ok().await;

    let past = "update orders set expires_at = now() where id = any($1::uuid[])";
    sqlx::query(past).bind([&due, &expired]).execute(&shop.pool).await.unwrap();
    let here = shop.in_process("batched");
    let lines = vec![("bike-chain".to_owned().try_into().unwrap(), 1)];
    let order = (OrderId(expired.parse().unwrap()), lines);
    let conditions = RequestContext::new(&here, Uuid::new_v4());
    engine::expire_orders(&here, &conditions, vec![order]).await.unwrap();

    assert_eq!(found(&admin, "status=expired").await, [expired.clone(), due.clone()]);
    assert_eq!(found(&admin, "status=cancelled").await, [cancelled, expired]);
    assert_eq!(found(&admin, "status=pending").await, [due, pending]);
}

/// A search reads a bounded part of the orders by an index, and the next page goes on behind it.
#[tokio::test(flavor = "multi_thread")]
async fn search_is_bounded_and_continues() {
    let shop = TestShop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    let order = id_of(&alice.orders("deadbolt", 1).ok().await);
    shop.pool.execute(NEWER_ORDERS).await.unwrap();
    shop.pool.execute("analyze orders").await.unwrap();

    let first = admin.get("/api/admin/orders?sku=deadbolt").await;
    let next = first.next_page().unwrap();
    assert_eq!(first.ok()["items"], json!([]), "the first page ends before the order");
    assert_eq!(
        next,
        "/api/admin/orders?after=ffff0000-0000-7000-8000-0000000003e9&limit=100&sku=deadbolt"
    );
    let second = admin.get(&next).await;
    assert_eq!(second.next_page(), None);
    assert_eq!(id_of(&second.ok()["items"][0]["order"]), order);
    assert_eq!(found(&admin, "user=alice").await, [order.as_str()], "by the index of the user");

    let alice_id = shop.user_id("alice").await;
    let mut tx = shop.pool.begin().await.unwrap();
    tx.execute("set local plan_cache_mode = force_generic_plan").await.unwrap();
    for search in [
        OrderSearch::default(),
        OrderSearch { user: Some(UserPart::Whole(alice_id)), ..OrderSearch::default() },
        OrderSearch { user: Some(UserPart::Part("[lL]".to_owned())), ..OrderSearch::default() },
        OrderSearch { id: IdPart::parse(&order[20..]), ..OrderSearch::default() },
        OrderSearch { id: IdPart::parse(&order), with_lab: true, ..OrderSearch::default() },
    ] {
        order_search::search_in(&mut tx, &search, None, 50).await.unwrap();
    }
    let rows = "select seq_scan from pg_stat_xact_user_tables where relname = 'orders'";
    let scans: i64 = sqlx::query_scalar(rows).fetch_one(&mut *tx).await.unwrap();
    assert_eq!((scans, MAX_SCANNED), (0, 5_000));
}
