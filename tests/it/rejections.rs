//! Invalid input at every route: the documented problem, and no change.

use holdfast_testkit::{TestShop, id_of};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// Counts and sums of all data that a request could change.
async fn state(shop: &TestShop) -> Vec<i64> {
    vec![
        shop.number("select coalesce(sum(stock), 0)::bigint from items").await,
        shop.number("select count(*) from items").await,
        shop.number("select count(*) from stock_ledger").await,
        shop.number("select coalesce(sum(balance_cents), 0)::bigint from accounts").await,
        shop.number("select count(*) from balance_ledger").await,
        shop.number("select count(*) from orders").await,
        shop.number("select count(*) from idempotency").await,
        shop.number("select count(*) from users").await,
    ]
}

/// A valid new item, but for one field.
fn item(name: &str, value: Value) -> Value {
    let mut item = json!({ "sku": "new", "name": "New", "price_cents": 1, "stock": 1 });
    item[name] = value;
    item
}

#[tokio::test]
async fn invalid_body_names_the_field() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let before = state(&shop).await;
    let line =
        |sku: &str, quantity: Value| json!({ "lines": [{ "sku": sku, "quantity": quantity }] });
    let many: Vec<Value> =
        (0..51).map(|n| json!({ "sku": format!("s{n}"), "quantity": 1 })).collect();
    let second = json!({ "lines": [
        { "sku": "deadbolt", "quantity": 1 }, { "sku": "key-ring", "quantity": 0 } ] });
    let rejected: [(&str, Value, &str); 44] = [
        ("/api/orders", json!({}), "body"),
        ("/api/orders", json!([]), "body"),
        ("/api/orders", json!([[["deadbolt", 1]]]), "body"),
        ("/api/orders", json!([[{ "sku": "deadbolt", "quantity": 1 }]]), "body"),
        ("/api/me/top-ups", json!([5]), "body"),
        ("/api/orders", json!({ "lines": [] }), "lines"),
        ("/api/orders", json!({ "lines": many }), "lines"),
        ("/api/orders", json!({ "lines": "all" }), "lines"),
        ("/api/orders", json!({ "lines": [{ "sku": "deadbolt" }] }), "lines[0]"),
        ("/api/orders", line("deadbolt", json!(0)), "lines[0].quantity"),
        ("/api/orders", line("deadbolt", json!(-1)), "lines[0].quantity"),
        ("/api/orders", line("deadbolt", json!(1001)), "lines[0].quantity"),
        ("/api/orders", second, "lines[1].quantity"),
        ("/api/orders", line("deadbolt", json!(1.5)), "lines[0].quantity"),
        ("/api/orders", line("deadbolt", json!("1")), "lines[0].quantity"),
        ("/api/orders", line("deadbolt", json!(u64::MAX)), "lines[0].quantity"),
        ("/api/orders", line("Deadbolt", json!(1)), "lines[0].sku"),
        ("/api/orders", line("", json!(1)), "lines[0].sku"),
        ("/api/orders", line(&"x".repeat(65), json!(1)), "lines[0].sku"),
        ("/api/orders", json!({ "lines": [], "coupon": "x" }), "coupon"),
        ("/api/lab/noop", line("deadbolt", json!(0)), "lines[0].quantity"),
        ("/api/me/top-ups", json!({ "amount_cents": 0 }), "amount_cents"),
        ("/api/me/top-ups", json!({ "amount_cents": -5 }), "amount_cents"),
        ("/api/me/top-ups", json!({ "amount_cents": 1_000_000_001_i64 }), "amount_cents"),
        ("/api/me/top-ups", json!({ "amount_cents": 1, "user": "bob" }), "user"),
        ("/api/items", item("sku", json!("Ünicode")), "sku"),
        ("/api/items", item("name", json!("")), "name"),
        ("/api/items", item("name", json!("a\u{0}b")), "name"),
        ("/api/items", item("name", json!("x".repeat(201))), "name"),
        ("/api/items", item("price_cents", json!(-1)), "price_cents"),
        ("/api/items", item("price_cents", json!(1_000_000_001_i64)), "price_cents"),
        ("/api/items", item("stock", json!(-1)), "stock"),
        ("/api/items", item("stock", json!(1_000_000_001_i64)), "stock"),
        ("/api/items", item("kind", json!("lab")), "kind"),
        ("/api/items/deadbolt/stock", json!({ "delta": 0, "reason": "x" }), "delta"),
        ("/api/items/deadbolt/stock", json!({ "delta": -41, "reason": "x" }), "delta"),
        ("/api/items/deadbolt/stock", json!({ "delta": i64::MIN, "reason": "x" }), "delta"),
        ("/api/items/deadbolt/stock", json!({ "delta": 1_000_000_000, "reason": "x" }), "delta"),
        ("/api/items/deadbolt/stock", json!({ "delta": 1, "reason": "order" }), "reason"),
        ("/api/items/deadbolt/stock", json!({ "delta": 1, "reason": "Cancelled" }), "reason"),
        ("/api/items/deadbolt/stock", json!({ "delta": 1, "reason": "下单" }), "reason"),
        ("/api/items/deadbolt/stock", json!({ "delta": 1, "reason": " " }), "reason"),
        ("/api/lab/items", json!({ "stock": -1 }), "stock"),
        ("/api/users", json!({ "user": "No Spaces", "password": "long enough" }), "user"),
    ];
    for (path, bad, field) in rejected {
        let problem = admin.post(path).json(&bad).fails(422, "invalid-request").await;
        assert_eq!(problem["errors"][0]["field"], field, "{path} {bad}");
    }
    assert_eq!(state(&shop).await, before);
}

/// `{}`, compressed.
const EMPTY_OBJECT_IN_GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0";

#[tokio::test]
async fn malformed_large_and_missing_have_own_problems() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let before = state(&shop).await;
    let json_addresses = [
        "/api/users",
        "/api/sessions",
        "/api/items",
        "/api/items/deadbolt/stock",
        "/api/orders",
        "/api/me/top-ups",
        "/api/lab/items",
        "/api/lab/noop",
    ];
    for path in json_addresses {
        let post = || admin.post(path);
        let json = "application/json";
        for (kind, body, status, name) in [
            (json, "{\"lines\": [".to_owned(), 400, "invalid-request"),
            (json, String::new(), 400, "invalid-request"),
            (json, "nonsense".to_owned(), 400, "invalid-request"),
            (json, "{} {}".to_owned(), 400, "invalid-request"),
            ("text/plain", "{}".to_owned(), 415, "invalid-request"),
            ("application/json; charset=utf-16", "{}".to_owned(), 415, "invalid-request"),
            (json, format!("{{\"x\": \"{}\"}}", "x".repeat(70_000)), 413, "payload-too-large"),
        ] {
            post().header("Content-Type", kind).body(body.clone()).fails(status, name).await;
        }
        // Not inflated: a short body could become a thousand times as long.
        let sent = post().header("Content-Type", json).header("Content-Encoding", "gzip");
        sent.body(EMPTY_OBJECT_IN_GZIP).fails(415, "invalid-request").await;
    }
    let missing = [
        "/api/nothing",
        "/api/items/nothing",
        "/api/items/NOT-A-SKU",
        "/api/items/nothing/ledger",
        "/api/items/nothing/audit",
        "/api/orders/not-an-id",
        "/api/orders/00000000-0000-7000-8000-000000000000",
    ];
    for path in missing {
        admin.get(path).fails(404, "not-found").await;
    }
    for path in [
        "/api/orders?limit=0",
        "/api/orders?limit=1001",
        "/api/orders?limit=x",
        "/api/orders?after=x",
        "/api/items?after=X",
        "/api/me/ledger?after=x",
        "/api/items/deadbolt/ledger?limit=-1",
    ] {
        admin.get(path).fails(422, "invalid-request").await;
    }
    admin.orders("nothing", 1).fails(404, "not-found").await;
    admin.restocks("nothing", 1).fails(404, "not-found").await;
    assert_eq!(state(&shop).await, before);
}

#[tokio::test]
async fn wrong_method_lists_allowed_methods() {
    let shop = TestShop::start(1).await;
    let description = shop.anonymous().get("/api/openapi.json").ok().await;
    for path in description["paths"].as_object().unwrap().keys() {
        let path = path.replace("{sku}", "deadbolt").replace("{id}", &Uuid::nil().to_string());
        let response = shop.anonymous().request(Method::OPTIONS, &path).await;
        assert_ne!(response.header("allow"), "");
        response.fails(405, "invalid-request");
    }
}

#[tokio::test]
async fn foreign_orders_are_invisible_and_immutable() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let order = alice.orders("deadbolt", 1).ok().await;

    bob.get(&format!("/api/orders/{}", id_of(&order))).fails(404, "not-found").await;
    for action in ["pay", "cancel", "refund"] {
        bob.acts(&order, action).fails(404, "not-found").await;
    }
    assert_eq!(alice.order(&order).await["status"], "pending");
    assert_eq!(bob.reads("/api/orders").await["items"], json!([]));
    for (method, path, send) in [
        (
            Method::POST,
            "/api/items",
            json!({ "sku": "x", "name": "X", "price_cents": 1, "stock": 1 }),
        ),
        (Method::POST, "/api/items/deadbolt/stock", json!({ "delta": 1, "reason": "x" })),
        (Method::POST, "/api/lab/items", json!({ "stock": 1 })),
        (Method::GET, "/api/audit", json!({})),
        (Method::GET, "/api/locks", json!({})),
    ] {
        bob.request(method, path).json(&send).fails(403, "forbidden").await;
    }
    shop.assert_sound().await;
}

#[tokio::test]
async fn invalid_session_is_unauthenticated() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let me = |token: &str| {
        let bearer = format!("Bearer {token}");
        shop.anonymous().get("/api/me").header("Authorization", bearer)
    };
    shop.anonymous().get("/api/me").fails(401, "unauthenticated").await;
    for forged in ["", "x", &alice.token[1..], &format!("{}x", alice.token)] {
        me(forged).fails(401, "unauthenticated").await;
    }
    // The password, in Base64.
    let basic = shop.anonymous().get("/api/me").header("Authorization", "Basic YWxpY2U6YWxpY2U=");
    basic.fails(401, "unauthenticated").await;

    for (user, password) in [("alice", "bob"), ("unknown", "unknown"), ("alice", ""), ("", "")] {
        let response = shop.anonymous().signs_in(user, password).await;
        assert_eq!(response.header("www-authenticate"), "Bearer realm=\"holdfast\"");
        response.fails(401, "unauthenticated");
    }
    shop.execute("update sessions set expires_at = now()").await;
    // The first replica has not cached this session.
    me(&alice.token).fails(401, "unauthenticated").await;

    let bob = shop.sign_in("bob").await;
    bob.request(Method::DELETE, "/api/sessions").await.succeeds(204);
    let over = me(&bob.token).await;
    let challenge = "Bearer realm=\"holdfast\", error=\"invalid_token\"";
    assert_eq!(over.header("www-authenticate"), challenge);
    over.fails(401, "unauthenticated");
    let anonymous = shop.anonymous().get("/api/me").await;
    assert_eq!(anonymous.header("www-authenticate"), "Bearer realm=\"holdfast\"");
}

#[tokio::test]
async fn cookie_session_requires_csrf_token() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let csrf: String =
        sqlx::query_scalar("select csrf from sessions").fetch_one(&shop.pool).await.unwrap();
    let before = state(&shop).await;
    let order = || {
        shop.anonymous()
            .request(Method::POST, "/api/orders")
            .header("Cookie", format!("holdfast_session={}", alice.token))
            .key(&Uuid::new_v4().to_string())
            .json(&json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] }))
    };
    order().fails(403, "forbidden").await;
    order().header("X-CSRF-Token", "wrong").fails(403, "forbidden").await;
    assert_eq!(state(&shop).await, before);
    order().header("X-CSRF-Token", csrf).succeeds(201).await;
}

#[tokio::test]
async fn responses_name_replica_and_strategy() {
    let shop = TestShop::start(1).await;
    let id = Uuid::new_v4().to_string();
    for path in ["/api/items", "/api/nothing", "/healthz"] {
        let headers = shop.anonymous().get(path).header("X-Request-Id", &id).await.headers;
        assert_eq!(headers["holdfast-replica"], shop.replicas[0].name());
        assert_eq!(headers["holdfast-strategy"], "batched");
        assert_eq!(headers["x-request-id"], id);
    }
}
