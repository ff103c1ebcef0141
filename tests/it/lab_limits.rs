//! One user's lab requests cannot affect the shop.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};

use crate::common::requests::{Answer as _, Sent, fresh_key, keyed, send};
use crate::common::{Shop, User, until};

/// More than the pool has connections.
const ATTACKERS: usize = 40;
/// The connections that one user's lab requests may hold, of the four of the lab.
const OF_ONE_USER: usize = 3;
/// Far less than a pause takes.
const MAX_ORDER_TIME: Duration = Duration::from_secs(2);

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
    until("the user's lab connections are in use", async || {
        let paused = shop.paused_requests(&admin, 0).await;
        paused.iter().filter(|request| request.point == "read").count() == OF_ONE_USER
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
    assert!(began.elapsed() < MAX_ORDER_TIME, "{:?}", began.elapsed());
    let mut rejected = 0;
    for sent in attack {
        let (status, kind, problem) = sent.outcome().await;
        // Those that were paused with a connection have no time left afterwards.
        let is_refused = ["that the lab may use", "of the lab are paused here"]
            .iter()
            .any(|why| problem["detail"].as_str().is_some_and(|detail| detail.contains(why)));
        rejected += usize::from((status, kind.as_str()) == (503, "overloaded") && is_refused);
    }
    assert_eq!(rejected, ATTACKERS - OF_ONE_USER, "all but those that were paused");
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
    assert!(began.elapsed() < MAX_ORDER_TIME, "{:?}", began.elapsed());
    for sent in behind.into_iter().chain([paused]) {
        sent.response().await;
    }
}

#[tokio::test]
async fn pauses_beyond_budget_are_rejected_at_once() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(1_000).await;
    let pausing = || shop.order(&alice, 0, &sku, 1).header("Holdfast-Lock", "none");
    let pausing = || pausing().header("Holdfast-Pause", "wait");
    let of_one: Vec<_> = (0..32).map(|_| send(pausing())).collect();
    shop.until_paused_count(&admin, 32, "wait").await;
    pausing().refuses(503, "overloaded").await;
    // Other users have their own budget.
    let bob = shop.sign_in("bob").await;
    let pausing_too = || shop.order(&bob, 0, &sku, 1).header("Holdfast-Lock", "none");
    let pausing_too = || pausing_too().header("Holdfast-Pause", "wait");
    let of_other = (0..32).map(|_| send(pausing_too()));
    let paused: Vec<_> = of_one.into_iter().chain(of_other).collect();
    shop.until_paused_count(&admin, 64, "wait").await;
    let carol = shop.sign_in("carol").await;
    let third = shop.order(&carol, 0, &sku, 1).header("Holdfast-Pause", "wait");
    let began = Instant::now();
    let rejected = third.send().await.unwrap();
    assert_eq!(rejected.headers()["retry-after"], "1");
    rejected.refuses(503, "overloaded").await;
    assert!(began.elapsed() < MAX_ORDER_TIME, "{:?}", began.elapsed());
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
async fn one_user_leaves_lab_connections_to_others() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let paused = hold_connections(&shop, &alice, OF_ONE_USER + 1).await;
    let sku = shop.lab_item(10).await;
    let order = shop.order(&bob, 0, &sku, 1).header("Holdfast-Lock", "row-lock");
    order.gives(201).await;
    paused.into_iter().for_each(|sent| sent.abort());
}

/// A finished key is looked up before the limits are checked.
#[tokio::test]
async fn finished_order_is_replayed_beyond_lab_limits() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(100).await;
    let orders = ["row-lock", "batched"].map(|strategy| {
        keyed(&shop, &alice, 0, &fresh_key(), &sku, 1).header("Holdfast-Lock", strategy)
    });
    let again = |order: &reqwest::RequestBuilder| order.try_clone().unwrap();
    for order in &orders {
        again(order).gives(201).await;
    }

    let paused = hold_connections(&shop, &alice, OF_ONE_USER).await;
    let duplicates = orders.each_ref().map(|order| send(again(order)));
    for duplicate in duplicates {
        let response = duplicate.response().await;
        assert_eq!(response.headers()["idempotent-replayed"], "true");
        response.gives(201).await;
    }
    for sent in paused {
        sent.response().await;
    }

    let pausing = || shop.order(&alice, 0, &sku, 1).header("Holdfast-Pause", "wait");
    let paused: Vec<_> = (0..32).map(|_| send(pausing())).collect();
    shop.until_paused_count(&admin, 32, "wait").await;
    for order in &orders {
        let response = again(order).header("Holdfast-Pause", "wait").send().await.unwrap();
        assert_eq!(response.headers()["idempotent-replayed"], "true");
        response.gives(201).await;
    }
    paused.into_iter().for_each(|sent| sent.abort());
}

/// Sends orders that are paused with a connection, and waits until one user's limit is reached.
async fn hold_connections(shop: &Shop, who: &User, count: usize) -> Vec<Sent> {
    let admin = shop.sign_in("admin").await;
    let mut sent = Vec::new();
    for _ in 0..count {
        let sku = shop.lab_item(10).await;
        let order = shop.order(who, 0, &sku, 1).header("Holdfast-Lock", "row-lock");
        sent.push(send(order.header("Holdfast-Pause", "read")));
    }
    shop.until_paused_count(&admin, OF_ONE_USER, "read").await;
    sent
}

#[tokio::test]
async fn only_admin_uses_lab_headers_with_shop_items() {
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
        let (status, kind, problem) = order().outcome().await;
        assert_eq!((status, kind.as_str()), (403, "forbidden"), "{name}");
        assert!(problem["detail"].as_str().unwrap().contains("only the admin"), "{problem}");
        let payment = shop.request(&alice, Method::POST, 0, &pay).header(name, value);
        assert_eq!(
            payment.header("Idempotency-Key", fresh_key()).fails(403).await,
            "forbidden",
            "{name}"
        );
        keyed(&shop, &admin, 0, &fresh_key(), "deadbolt", 1).header(name, value).gives(201).await;
    }
    assert_eq!(shop.number("select count(*) from orders where status = 'paid'").await, 0);
}
