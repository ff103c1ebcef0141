//! What one user's lab requests can do to the shop: nothing.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};

use crate::common::requests::{Answer as _, fresh_key, keyed, response_of, send};
use crate::common::{Shop, until};

/// More than the pool has connections.
const ATTACKERS: usize = 40;
/// Far less than a pause takes.
const QUICK: Duration = Duration::from_secs(2);

#[tokio::test]
async fn paused_orders_leave_connections_to_shop() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let mut items = Vec::new();
    for _ in 0..ATTACKERS {
        items.push(shop.lab_item(1_000).await);
    }
    let attack: Vec<_> = items
        .iter()
        .map(|sku| shop.order(&alice, 0, sku, 1))
        .map(|order| order.header("Holdfast-Lock", "row-lock").header("Holdfast-Pause", "read"))
        .map(send)
        .collect();
    let (admin, own) = (shop.sign_in("admin").await, shop.shop_item(1_000, 100).await);
    until("the lab has all of its connections", async || {
        let paused = shop.paused_requests(&admin, 0).await;
        paused.iter().filter(|request| request.point == "read").count() == 4
    })
    .await;
    let began = Instant::now();
    let orders = (0..24).map(|_| send(shop.order(&bob, 0, &own, 1)));
    for order in orders.collect::<Vec<_>>() {
        order.gives(201).await;
    }
    for page in ["/shop", "/items/deadbolt", "/api/items", "/api/orders"] {
        let response = shop.get(&bob, 0, page).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{page}");
    }
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
    let mut refused = 0;
    for sent in attack {
        let (status, kind, told) = sent.outcome().await;
        if (status, kind.as_str()) == (503, "overloaded") {
            refused += usize::from(told["detail"].as_str().unwrap().contains("the lab may use"));
        }
    }
    assert_eq!(refused, ATTACKERS - 4, "all but those that were paused");
}

/// Without a pause of their own, they wait for the row of a paused one.
#[tokio::test]
async fn orders_behind_paused_one_leave_connections() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let (sku, admin) = (shop.lab_item(1_000).await, shop.sign_in("admin").await);
    let under = || shop.order(&alice, 0, &sku, 1).header("Holdfast-Lock", "row-lock");
    let paused = send(under().header("Holdfast-Pause", "read"));
    shop.until_one_is_paused(&admin, "read").await;
    let behind: Vec<_> = (0..ATTACKERS).map(|_| send(under())).collect();
    let own = shop.shop_item(1_000, 100).await;
    let began = Instant::now();
    for order in (0..24).map(|_| send(shop.order(&bob, 0, &own, 1))).collect::<Vec<_>>() {
        order.gives(201).await;
    }
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
    for sent in behind.into_iter().chain([paused]) {
        response_of(sent).await;
    }
}

#[tokio::test]
async fn pauses_beyond_budget_are_refused_at_once() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(1_000).await;
    let pausing = || shop.order(&alice, 0, &sku, 1).header("Holdfast-Lock", "none");
    let pausing = || pausing().header("Holdfast-Pause", "wait");
    let paused: Vec<_> = (0..64).map(|_| send(pausing())).collect();
    shop.until_paused_count(&admin, 64, "wait").await;
    let began = Instant::now();
    let refused = pausing().send().await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(refused.fails(503).await, "overloaded");
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
    for request in shop.paused_requests(&admin, 0).await {
        shop.resume_request(&admin, 0, &request.request).await;
    }
    for sent in paused {
        sent.gives(201).await;
    }
    let again = send(pausing());
    shop.until_one_is_paused(&admin, "wait").await;
    again.abort();
}

#[tokio::test]
async fn lab_headers_with_shop_items_are_the_admins() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let headers = [
        ("Holdfast-Lock", "batched"),
        ("Holdfast-Lock", "fenced"),
        ("Holdfast-Wait", "try"),
        ("Holdfast-Work-Ms", "0"),
        ("Holdfast-Pause", "read:1"),
        ("Holdfast-Trace", "on"),
        ("Holdfast-Pay-Within-Ms", "1000"),
    ];
    let unpaid = shop.place_order(&alice, "deadbolt", 1).await;
    let pay = format!("/api/orders/{}/pay", unpaid["id"].as_str().unwrap());
    for (name, value) in headers {
        let order = || shop.order(&alice, 0, "deadbolt", 1).header(name, value);
        let (status, kind, told) = order().outcome().await;
        assert_eq!((status, kind.as_str()), (403, "forbidden"), "{name}");
        assert!(told["detail"].as_str().unwrap().contains("only the admin"), "{told}");
        let payment = shop.request(&alice, Method::POST, 0, &pay).header(name, value);
        let payment = payment.header("Idempotency-Key", fresh_key()).send().await.unwrap();
        assert_eq!(payment.fails(403).await, "forbidden", "{name}");
        keyed(&shop, &admin, 0, &fresh_key(), "deadbolt", 1).header(name, value).gives(201).await;
    }
    assert_eq!(shop.number("select count(*) from orders where status = 'paid'").await, 0);
}
