//! Orders, payments, cancellations and refunds, and their ledger entries.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::Shop;
use crate::common::requests::Answer as _;

#[tokio::test]
async fn order_and_payment_are_in_the_ledgers() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let lines = [("key-ring", 2), ("deadbolt", 1), ("key-ring", 1)];
    let order = shop.order_lines(&alice, 0, &lines).gives(201).await;
    assert_eq!(order["status"], "pending");
    assert_eq!(order["total_cents"], 4_900 + 3 * 650);
    assert_eq!(order["lines"][0]["sku"], "deadbolt", "lines are sorted");
    assert_eq!(order["lines"][1]["quantity"], 3, "the same item twice is summed");
    assert_eq!(order["lines"][1]["stock"], json!({ "before": 300, "delta": -3, "after": 297 }));

    let id = order["id"].as_str().unwrap();
    // The other replica knows the order, the session and the stock.
    let paid = shop
        .request(&alice, Method::POST, 1, &format!("/api/orders/{id}/pay"))
        .header("Idempotency-Key", "journey-journey-2")
        .send()
        .await
        .unwrap();
    assert_eq!(paid.headers()["holdfast-replica"], shop.replicas[1].name());
    assert_eq!(paid.headers()["holdfast-strategy"], "batched");
    let paid = paid.gives(200).await;
    assert_eq!(paid["order"]["status"], "paid");
    assert_eq!(paid["balance"], json!({ "before": 100_000, "delta": -6_850, "after": 93_150 }));

    let ledger = shop.read(&alice, "/api/items/key-ring/ledger").await;
    let last = ledger["items"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["before"], &last["delta"], &last["after"]),
        (&json!(300), &json!(-3), &json!(297))
    );
    assert_eq!(last["order_id"], id);
    assert_eq!(shop.read(&alice, "/api/me").await["balance_cents"], 93_150);
    shop.assert_sound().await;
}

#[tokio::test]
async fn refund_returns_units_and_money_once() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = shop.place_order(&alice, "deadbolt", 2).await;
    let id = order["id"].as_str().unwrap();
    let post = |action: &'static str| shop.post(&alice, 0, &format!("/api/orders/{id}/{action}"));
    let rejected = post("refund").fails(409).await;
    assert_eq!(rejected, "order-state", "an unpaid order cannot be refunded");
    post("pay").gives(200).await;
    post("pay").refuses(409, "order-state").await;
    post("cancel").refuses(409, "order-state").await;

    let refunded = post("refund").gives(200).await;
    assert_eq!(refunded["order"]["status"], "refunded");
    assert_eq!(refunded["stock"]["deadbolt"], json!({ "before": 38, "delta": 2, "after": 40 }));
    assert_eq!(refunded["balance"], json!({ "before": 90_200, "delta": 9_800, "after": 100_000 }));
    post("refund").refuses(409, "order-state").await;
    shop.assert_sound().await;
}

#[tokio::test]
async fn cancelled_order_returns_stock_once() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = shop.place_order(&alice, "strongbox", 5).await;
    let path = format!("/api/orders/{}/cancel", order["id"].as_str().unwrap());
    let cancel = || shop.request(&alice, Method::POST, 0, &path).send();
    let (first, second, third) = futures_util::join!(cancel(), cancel(), cancel());
    let mut statuses: Vec<u16> =
        [first, second, third].map(|response| response.unwrap().status().as_u16()).into();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409]);
    assert_eq!(shop.item_audit("strongbox").await["stock"], 12);
    shop.assert_sound().await;
}

#[tokio::test]
async fn order_of_several_items_is_atomic() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let lines = [("deadbolt", 1), ("last-lantern", 2)];
    let rejection = shop.order_lines(&alice, 0, &lines).refuses(409, "sold-out").await;
    assert_eq!(rejection["sku"], "last-lantern");
    assert_eq!((&rejection["requested"], &rejection["available"]), (&json!(2), &json!(1)));
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 40, "the other line changed nothing");
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn payment_needs_sufficient_balance() {
    let shop = Shop::start(1).await;
    let bob = shop.sign_in("bob").await;
    let order = shop.place_order(&bob, "strongbox", 6).await;
    let path = format!("/api/orders/{}/pay", order["id"].as_str().unwrap());
    let pay = || {
        shop.request(&bob, Method::POST, 0, &path)
            .header("Idempotency-Key", "not-enough-money-1")
            .send()
    };
    pay().await.unwrap().refuses(402, "insufficient-funds").await;
    let entry = shop
        .request(&bob, Method::POST, 0, "/api/me/top-ups")
        .header("Idempotency-Key", "not-enough-money-2")
        .json(&json!({ "amount_cents": 50_000 }))
        .gives(201)
        .await;
    assert_eq!(entry["after"], 150_000);
    // A rejection is not stored: the same key succeeds now.
    let paid = pay().await.unwrap().gives(200).await;
    assert_eq!(paid["balance"]["after"], 150_000 - 6 * 18_900);
    shop.assert_sound().await;
}

#[tokio::test]
async fn expired_order_cannot_be_paid() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = shop.place_order(&alice, "deadbolt", 1).await;
    shop.execute("update orders set expires_at = clock_timestamp()").await;
    let path = format!("/api/orders/{}/pay", order["id"].as_str().unwrap());
    shop.request(&alice, Method::POST, 0, &path)
        .header("Idempotency-Key", "it-is-too-late-now")
        .refuses(409, "order-expired")
        .await;
    assert_eq!(shop.read(&alice, "/api/me").await["balance_cents"], 100_000);
    shop.assert_sound().await;
}

#[tokio::test]
async fn admin_creates_and_restocks_items() {
    let shop = Shop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let item = json!({ "sku": "hasp", "name": "Hasp", "price_cents": 900, "stock": 10 });
    let create = || shop.request(&admin, Method::POST, 0, "/api/items").json(&item).send();
    let created = create().await.unwrap();
    assert_eq!(created.headers()["location"], "/api/items/hasp");
    created.gives(201).await;
    create().await.unwrap().refuses(409, "exists").await;
    for (delta, after) in [(20, 30), (-5, 25)] {
        let entry = shop
            .post(&admin, 0, "/api/items/hasp/stock")
            .json(&json!({ "delta": delta, "reason": "inventory" }))
            .gives(200)
            .await;
        assert_eq!(entry["after"], after);
    }
    let audit = shop.item_audit("hasp").await;
    assert_eq!(
        (&audit["opening"], &audit["restocked"], &audit["stock"]),
        (&json!(10), &json!(15), &json!(25))
    );
    let ledger = shop.read(&admin, "/api/items/hasp/ledger").await;
    let reasons: Vec<&str> =
        ledger["items"].as_array().unwrap().iter().map(|e| e["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["opening", "inventory", "inventory"]);
    shop.assert_sound().await;
}

#[tokio::test]
async fn lists_are_paginated_by_cursor() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let mut placed = Vec::new();
    for _ in 0..3 {
        let order = shop.place_order(&alice, "key-ring", 1).await;
        placed.insert(0, order["id"].as_str().unwrap().to_owned());
    }
    let ids = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest = shop.read(&alice, "/api/orders?limit=2").await;
    assert_eq!(ids(&newest), placed[..2]);
    assert_eq!(newest["next"], placed[1]);
    let rest = shop.read(&alice, &format!("/api/orders?limit=2&after={}", placed[1])).await;
    assert_eq!((ids(&rest), &rest["next"]), (placed[2..].to_vec(), &Value::Null));
    let entries = shop.read(&alice, "/api/items/key-ring/ledger?limit=2").await;
    let seq = entries["items"][1]["seq"].as_i64().unwrap();
    assert_eq!(entries["next"], seq.to_string());
    let more = shop.read(&alice, &format!("/api/items/key-ring/ledger?after={seq}")).await;
    assert_eq!(more["items"].as_array().unwrap().len(), 2);
    let items = shop.read(&alice, "/api/items?after=key-ring&limit=1").await;
    assert_eq!(items["items"][0]["sku"], "last-lantern");
}

#[tokio::test]
async fn link_header_leads_through_the_list() {
    let shop = Shop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for run in 0..3 {
        let insert = "insert into lab_runs (id, wanted, state, progress, created_at)
            values ($1, '{\"strategies\": [\"none\"]}', 'done', '{}', '2026-01-01')";
        let id = Uuid::from_u128(run);
        sqlx::query(insert).bind(id).execute(&shop.pool).await.unwrap();
    }
    for start in ["/api/items", "/api/items/key-ring/ledger", "/api/me/ledger", "/api/lab/runs"] {
        for _ in 0..2 {
            shop.post(&admin, 0, "/api/me/top-ups")
                .json(&json!({ "amount_cents": 1 }))
                .send()
                .await
                .unwrap();
            shop.place_order(&admin, "key-ring", 1).await;
        }
        let whole = shop.read(&admin, start).await["items"].clone();
        let (mut path, mut entries) = (format!("{start}?limit=1"), Vec::new());
        loop {
            let response = shop.get(&admin, 0, &path).send().await.unwrap();
            let link = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
            let page = response.gives(200).await;
            entries.extend(page["items"].as_array().unwrap().clone());
            assert_eq!(link.is_none(), page["next"].is_null(), "{page}");
            let Some(link) = link else { break };
            path = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap().into();
        }
        assert!(entries.len() > 1, "{start}: {whole}");
        assert_eq!(Value::from(entries), whole, "{start}");
    }
}

#[tokio::test]
async fn created_responses_have_a_location() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let lines = json!({ "lines": [{ "sku": "key-ring", "quantity": 1 }] });
    let top_up = json!({ "amount_cents": 5 });
    let item = json!({ "stock": 1 });
    let user = json!({ "user": "erin", "password": "erin-erin" });
    let session = json!({ "user": "alice", "password": "alice" });
    for (who, path, sent) in [
        (&alice, "/api/orders", lines),
        (&alice, "/api/me/top-ups", top_up),
        (&alice, "/api/order-tokens", json!({})),
        (&admin, "/api/lab/items", item),
        (&alice, "/api/users", user),
        (&alice, "/api/sessions", session),
    ] {
        let key = Uuid::new_v4().to_string();
        let mut bodies = Vec::new();
        // The second response is a replay if the command takes a key.
        let times = if path == "/api/orders" || path == "/api/me/top-ups" { 2 } else { 1 };
        for _ in 0..times {
            let request = shop.request(who, Method::POST, 0, path).header("Idempotency-Key", &key);
            let created = request.json(&sent).send().await.unwrap();
            let location = created.headers()["location"].to_str().unwrap().to_owned();
            bodies.push(created.gives(201).await);
            if path == "/api/sessions" {
                continue;
            }
            let found = shop.read(who, &location).await;
            match path {
                "/api/orders" => assert_eq!(found["id"], bodies[0]["id"]),
                "/api/me/top-ups" => assert_eq!(found["items"], json!([bodies[0]])),
                "/api/lab/items" => assert_eq!(found["sku"], bodies[0]["sku"]),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn tables_have_the_documented_columns() {
    let shop = Shop::without_replicas().await;
    let expected = [
        ("items", "sku name price_cents stock version fence kind"),
        ("stock_ledger", "seq sku before delta after version reason order_id fence request_id at"),
        ("accounts", "user_id balance_cents version fence"),
        (
            "balance_ledger",
            "seq user_id before delta after version reason order_id fence request_id at",
        ),
        ("users", "id"),
        ("orders", "id user_id status total_cents token created_at expires_at paid_at"),
        ("order_lines", "order_id sku quantity unit_price_cents"),
        ("idempotency", "user_id method path key fingerprint status body created_at"),
    ];
    for (table, columns) in expected {
        let actual: Vec<String> = sqlx::query_scalar(
            "select column_name::text from information_schema.columns where table_name = $1",
        )
        .bind(table)
        .fetch_all(&shop.pool)
        .await
        .unwrap();
        for column in columns.split(' ') {
            assert!(actual.iter().any(|name| name == column), "{table}.{column}");
        }
    }
}

/// Refunds may raise the stock above the maximum; then units can be removed, and none added.
#[tokio::test]
async fn stock_above_maximum_may_only_shrink() {
    let shop = Shop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    let sku = shop.shop_item(5, 1).await;
    let order = shop.place_order(&alice, &sku, 2).await;
    let path = format!("/api/orders/{}", order["id"].as_str().unwrap());
    shop.post(&alice, 0, &format!("{path}/pay")).gives(200).await;
    shop.restock(&sku, 1_000_000_000 - 3).await;
    shop.request(&alice, Method::POST, 0, &format!("{path}/refund")).gives(200).await;
    let change = async |delta: i64| {
        let change = shop.request(&admin, Method::POST, 0, &format!("/api/items/{sku}/stock"));
        change.json(&json!({ "delta": delta, "reason": "correction" })).send().await.unwrap()
    };
    change(1).await.refuses(422, "invalid-request").await;
    let entry = change(-1).await.gives(200).await;
    assert_eq!((&entry["before"], &entry["after"]), (&json!(1_000_000_002), &json!(1_000_000_001)));
    shop.assert_sound().await;
}
