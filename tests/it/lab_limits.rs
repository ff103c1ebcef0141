//! One user's lab requests cannot affect the shop.

use std::time::{Duration, Instant};

use holdfast_testkit::{BUSY_MACHINE, Call, Sent, TestShop, User, until};

/// More than the pool has connections.
const ATTACKERS: usize = 40;
/// The connections that one user's lab requests may hold, of the four of the lab.
const OF_ONE_USER: usize = 3;
/// Less than the eight seconds of a pause.
const MAX_ORDER_TIME: Duration = Duration::from_secs(2).saturating_add(BUSY_MACHINE);

#[tokio::test]
async fn paused_orders_leave_connections_to_shop() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let mut items = Vec::new();
    for _ in 0..ATTACKERS {
        items.push(shop.lab_item(1_000).await);
    }
    let attack: Vec<_> = items
        .iter()
        .map(|sku| alice.orders(sku, 1))
        .map(|order| order.lock("row-lock").pause("read"))
        .map(Call::send)
        .collect();
    let (admin, own) = (shop.sign_in("admin").await, shop.shop_item(1_000, 100).await);
    until("the user's lab connections are in use", async || {
        let paused = shop.paused_requests(&admin, 0).await;
        paused.iter().filter(|request| request.point == "read").count() == OF_ONE_USER
    })
    .await;
    let began = Instant::now();
    let orders = (0..24).map(|_| bob.orders(&own, 1).send());
    for order in orders.collect::<Vec<_>>() {
        order.succeeds(201).await;
    }
    for page in ["/shop", "/items/deadbolt", "/api/items", "/api/orders"] {
        let response = bob.get(page).await;
        assert_eq!(response.status, 200, "{page}");
    }
    assert!(began.elapsed() < MAX_ORDER_TIME, "{:?}", began.elapsed());
    let mut rejected = 0;
    for sent in attack {
        let reply = sent.await;
        // Those that were paused with a connection have no time left afterwards.
        let is_refused = ["that the lab may use", "of the lab are paused here"]
            .iter()
            .any(|why| reply.body["detail"].as_str().is_some_and(|detail| detail.contains(why)));
        rejected += usize::from(reply.outcome() == (503, "overloaded") && is_refused);
    }
    assert_eq!(rejected, ATTACKERS - OF_ONE_USER, "all but those that were paused");
}

/// Without a pause of their own, they wait for the row of a paused one.
#[tokio::test]
async fn orders_behind_paused_one_leave_connections() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let (sku, admin) = (shop.lab_item(1_000).await, shop.sign_in("admin").await);
    let under = || alice.orders(&sku, 1).lock("row-lock");
    let paused = under().pause("read").send();
    shop.until_one_is_paused(&admin, "read").await;
    let behind: Vec<_> = (0..ATTACKERS).map(|_| under().send()).collect();
    let own = shop.shop_item(1_000, 100).await;
    let began = Instant::now();
    for order in (0..24).map(|_| bob.orders(&own, 1).send()).collect::<Vec<_>>() {
        order.succeeds(201).await;
    }
    assert!(began.elapsed() < MAX_ORDER_TIME, "{:?}", began.elapsed());
    for sent in behind.into_iter().chain([paused]) {
        sent.await;
    }
}

#[tokio::test]
async fn pauses_beyond_budget_are_rejected_at_once() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(1_000).await;
    let pausing = || alice.orders(&sku, 1).lock("none");
    let pausing = || pausing().pause("wait");
    let of_one: Vec<_> = (0..32).map(|_| pausing().send()).collect();
    shop.until_paused_count(&admin, 32, "wait").await;
    pausing().fails(503, "overloaded").await;
    // Other users have their own budget.
    let bob = shop.sign_in("bob").await;
    let pausing_too = || bob.orders(&sku, 1).lock("none");
    let pausing_too = || pausing_too().pause("wait");
    let of_other = (0..32).map(|_| pausing_too().send());
    let paused: Vec<_> = of_one.into_iter().chain(of_other).collect();
    shop.until_paused_count(&admin, 64, "wait").await;
    let carol = shop.sign_in("carol").await;
    let third = carol.orders(&sku, 1).pause("wait");
    let began = Instant::now();
    let rejected = third.await;
    assert_eq!(rejected.header("retry-after"), "1");
    rejected.fails(503, "overloaded");
    assert!(began.elapsed() < MAX_ORDER_TIME, "{:?}", began.elapsed());
    shop.resume_all(&admin).await;
    for sent in paused {
        sent.succeeds(201).await;
    }
    let again = pausing().send();
    shop.until_one_is_paused(&admin, "wait").await;
    again.abort();
}

#[tokio::test]
async fn one_user_leaves_lab_connections_to_others() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let paused = hold_connections(&shop, &alice, OF_ONE_USER + 1).await;
    let sku = shop.lab_item(10).await;
    bob.orders(&sku, 1).lock("row-lock").succeeds(201).await;
    paused.into_iter().for_each(|sent| sent.abort());
}

/// A finished key is looked up before the limits are checked.
#[tokio::test]
async fn finished_order_is_replayed_beyond_lab_limits() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(100).await;
    let orders = ["row-lock", "batched"].map(|strategy| alice.orders(&sku, 1).lock(strategy));
    for order in &orders {
        order.clone().succeeds(201).await;
    }

    let paused = hold_connections(&shop, &alice, OF_ONE_USER).await;
    let duplicates = orders.each_ref().map(|order| order.clone().send());
    for duplicate in duplicates {
        let response = duplicate.await;
        assert!(response.is_replayed());
        response.ok();
    }
    for sent in paused {
        sent.await;
    }

    let pausing = || alice.orders(&sku, 1).pause("wait");
    let paused: Vec<_> = (0..32).map(|_| pausing().send()).collect();
    shop.until_paused_count(&admin, 32, "wait").await;
    for order in &orders {
        let response = order.clone().pause("wait").await;
        assert!(response.is_replayed());
        response.ok();
    }
    paused.into_iter().for_each(|sent| sent.abort());
}

/// Sends orders that are paused with a connection, and waits until one user's limit is reached.
async fn hold_connections(shop: &TestShop, who: &User, count: usize) -> Vec<Sent> {
    let admin = shop.sign_in("admin").await;
    let mut sent = Vec::new();
    for _ in 0..count {
        let sku = shop.lab_item(10).await;
        let order = who.orders(&sku, 1).lock("row-lock");
        sent.push(order.pause("read").send());
    }
    shop.until_paused_count(&admin, OF_ONE_USER, "read").await;
    sent
}

#[tokio::test]
async fn only_admin_uses_lab_headers_with_shop_items() {
    let shop = TestShop::start(1).await;
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
    let unpaid = alice.orders("deadbolt", 1).ok().await;

    for (name, value) in headers {
        let problem = alice.orders("deadbolt", 1).header(name, value).fails(403, "forbidden").await;
        assert!(problem["detail"].as_str().unwrap().contains("only the admin"), "{problem}");
        alice.pays(&unpaid).header(name, value).fails(403, "forbidden").await;
        admin.orders("deadbolt", 1).header(name, value).ok().await;
    }
    assert_eq!(shop.number("select count(*) from orders where status = 'paid'").await, 0);
}
