//! Orders, payments, cancellations and refunds, and their ledger entries.

use futures_util::future::join_all;
use holdfast_testkit::{TestShop, assert_has};
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn order_and_payment_are_in_the_ledgers() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let lines = [("key-ring", 2), ("deadbolt", 1), ("key-ring", 1)];
    let order = alice.orders_all(&lines).ok().await;
    assert_eq!(order["status"], "pending");
    assert_eq!(order["total_cents"], 4_900 + 3 * 650);
    assert_eq!(order["lines"][0]["sku"], "deadbolt", "lines are sorted");
    assert_eq!(order["lines"][1]["quantity"], 3, "the same item twice is summed");
    assert_eq!(order["lines"][1]["stock"], json!({ "before": 300, "delta": -3, "after": 297 }));

    let id = order["id"].as_str().unwrap();
    // The other replica knows the order, the session and the stock.
    let paid = alice.at(1).pays(&order).await;
    assert_eq!(paid.header("holdfast-replica"), shop.replicas[1].name());
    assert_eq!(paid.header("holdfast-strategy"), "batched");
    let paid = paid.ok();
    assert_eq!(paid["order"]["status"], "paid");
    assert_eq!(paid["balance"], json!({ "before": 100_000, "delta": -6_850, "after": 93_150 }));

    let ledger = alice.reads("/api/items/key-ring/ledger").await;
    let last = ledger["items"].as_array().unwrap().last().unwrap();
    assert_has(last, json!({ "before": 300, "delta": -3, "after": 297 }));
    assert_eq!(last["order_id"], id);
    assert_eq!(alice.reads("/api/me").await["balance_cents"], 93_150);
    shop.assert_sound().await;
}

#[tokio::test]
async fn refund_returns_units_and_money_once() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("deadbolt", 2).ok().await;
    // An unpaid order cannot be refunded.
    alice.refunds(&order).fails(409, "order-state").await;
    alice.pays(&order).ok().await;
    alice.pays(&order).fails(409, "order-state").await;
    alice.cancels(&order).fails(409, "order-state").await;

    let refunded = alice.refunds(&order).ok().await;
    assert_eq!(refunded["order"]["status"], "refunded");
    assert_eq!(refunded["stock"]["deadbolt"], json!({ "before": 38, "delta": 2, "after": 40 }));
    assert_eq!(refunded["balance"], json!({ "before": 90_200, "delta": 9_800, "after": 100_000 }));
    alice.refunds(&order).fails(409, "order-state").await;
    shop.assert_sound().await;
}

#[tokio::test]
async fn cancelled_order_returns_stock_once() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("strongbox", 5).ok().await;

    let cancellations = [0; 3].map(|_| alice.cancels(&order).send());
    let mut statuses = join_all(cancellations).await.iter().map(|it| it.status).collect::<Vec<_>>();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409]);
    assert_eq!(shop.item_audit("strongbox").await["stock"], 12);
    shop.assert_sound().await;
}

#[tokio::test]
async fn order_of_several_items_is_atomic() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let lines = [("deadbolt", 1), ("last-lantern", 2)];
    let rejection = alice.orders_all(&lines).fails(409, "sold-out").await;
    assert_eq!(rejection["sku"], "last-lantern");
    assert_has(&rejection, json!({ "requested": 2, "available": 1 }));
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 40, "the other line changed nothing");
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn payment_needs_sufficient_balance() {
    let shop = TestShop::start(1).await;
    let bob = shop.sign_in("bob").await;
    let order = bob.orders("strongbox", 6).ok().await;
    let pay = bob.pays(&order);
    pay.clone().fails(402, "insufficient-funds").await;

    let entry = bob.tops_up(50_000).ok().await;
    assert_eq!(entry["after"], 150_000);
    // A rejection is not stored: the same key succeeds now.
    let paid = pay.ok().await;
    assert_eq!(paid["balance"]["after"], 150_000 - 6 * 18_900);
    shop.assert_sound().await;
}

#[tokio::test]
async fn expired_order_cannot_be_paid() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("deadbolt", 1).ok().await;
    shop.execute("update orders set expires_at = clock_timestamp()").await;
    alice.pays(&order).fails(409, "order-expired").await;
    assert_eq!(alice.reads("/api/me").await["balance_cents"], 100_000);
    shop.assert_sound().await;
}

#[tokio::test]
async fn link_header_leads_through_the_list() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for run in 0..3 {
        let insert = "insert into lab_runs (id, wanted, state, progress, created_at)
            values ($1, '{\"strategies\": [\"none\"]}', 'done', '{}', '2026-01-01')";
        let id = Uuid::from_u128(run);
        sqlx::query(insert).bind(id).execute(&shop.pool).await.unwrap();
    }
    for start in [
        "/api/items",
        "/api/items/key-ring/ledger",
        "/api/me/ledger",
        "/api/orders",
        "/api/lab/runs",
    ] {
        let mut newest = Value::Null;
        for _ in 0..2 {
            admin.tops_up(1).await;
            newest = admin.orders("key-ring", 1).ok().await;
        }
        let whole = admin.reads(start).await["items"].clone();
        if start == "/api/orders" {
            assert_eq!(whole[0]["id"], newest["id"], "the newest order is the first");
        }

        let (mut path, mut entries) = (format!("{start}?limit=1"), Vec::new());
        loop {
            let response = admin.get(&path).await;
            let next = response.next_page();
            let page = response.ok();
            entries.extend(page["items"].as_array().unwrap().clone());
            assert_eq!(next.is_none(), page["next"].is_null(), "{page}");
            let Some(next) = next else { break };
            path = next;
        }
        assert!(entries.len() > 1, "{start}: {whole}");
        assert_eq!(Value::from(entries), whole, "{start}");
    }
}

#[tokio::test]
async fn created_responses_have_a_location() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let lines = json!({ "lines": [{ "sku": "key-ring", "quantity": 1 }] });
    let top_up = json!({ "amount_cents": 5 });
    let item = json!({ "sku": "hasp", "name": "Hasp", "price_cents": 900, "stock": 10 });
    let lab_item = json!({ "stock": 1 });
    let user = json!({ "user": "erin", "password": "erin-erin" });
    let session = json!({ "user": "alice", "password": "alice" });
    for (who, path, sent) in [
        (&alice, "/api/orders", lines),
        (&alice, "/api/me/top-ups", top_up),
        (&alice, "/api/order-tokens", json!({})),
        (&admin, "/api/items", item),
        (&admin, "/api/lab/items", lab_item),
        (&alice, "/api/users", user),
        (&alice, "/api/sessions", session),
    ] {
        let command = who.post(path).json(&sent);
        let mut bodies = Vec::new();
        // The second response is a replay if the command takes a key.
        let times = if path == "/api/orders" || path == "/api/me/top-ups" { 2 } else { 1 };
        for _ in 0..times {
            let created = command.clone().await;
            let location = created.header("location").to_owned();
            bodies.push(created.succeeds(201));
            if path == "/api/sessions" {
                continue;
            }
            let found = who.reads(&location).await;
            match path {
                "/api/orders" => assert_eq!(found["id"], bodies[0]["id"]),
                "/api/me/top-ups" => assert_eq!(found["items"], json!([bodies[0]])),
                "/api/items" => assert_has(&found, json!({ "sku": "hasp", "stock": 10 })),
                "/api/lab/items" => assert_eq!(found["sku"], bodies[0]["sku"]),
                _ => {}
            }
        }
    }
}

/// Refunds may raise the stock above the maximum; then units can be removed, and none added.
#[tokio::test]
async fn stock_above_maximum_may_only_shrink() {
    let shop = TestShop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    let sku = shop.shop_item(5, 1).await;
    let order = alice.orders(&sku, 2).ok().await;
    alice.pays(&order).ok().await;
    shop.restock(&sku, 1_000_000_000 - 3).await;
    alice.refunds(&order).ok().await;

    admin.restocks(&sku, 1).fails(422, "invalid-request").await;
    let entry = admin.restocks(&sku, -1).ok().await;
    assert_has(&entry, json!({ "before": 1_000_000_002, "after": 1_000_000_001 }));
    shop.assert_sound().await;
}
