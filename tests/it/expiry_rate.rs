//! Unpaid orders expire in large transactions, as fast as they are placed.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use holdfast::load::script::Posts;
use holdfast::load::{self, LoadClient, LoadPlan};
use reqwest::StatusCode;
use tokio::sync::oneshot;

use crate::common::{Shop, until};
use crate::order_expiry::JOBS_ON;

const CONNECTIONS: usize = 32;

/// Places `orders` orders that are due at once, of the items in turn.
async fn place_due_orders(shop: &Shop, skus: &[String], orders: usize) {
    let alice = shop.sign_in("alice").await;
    let lines = |sku| format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":1}}]}}");
    let bodies: Vec<String> = skus.iter().map(lines).collect();
    let each = (orders / CONNECTIONS) as u64;
    let headers = ["Holdfast-Hold-Ms: 1".to_owned()];
    let client = |n: usize| LoadClient {
        target: shop.replicas[0].base_url[7..].parse().unwrap(),
        script: Box::new(Posts::new("/api/orders", &alice.token, &headers, &bodies, n).limit(each)),
    };
    let plan = LoadPlan {
        clients: (0..CONNECTIONS).map(client).collect(),
        warm_up: Duration::ZERO,
        window: None,
        expected: |status| status == 201,
        observe: false,
        live: None,
    };
    let began = Instant::now();
    let report = load::run(plan).await.unwrap();
    assert_eq!(report.expected_total, orders as u64, "{:?}", report.statuses);
    println!("{:.0} orders/s placed", orders as f64 / began.elapsed().as_secs_f64());
}

/// Has `orders` due orders of `items` items expire while others are placed; returns the number of
/// transactions.
async fn expire(items: usize, orders: usize) -> i64 {
    let mut shop = Shop::start(1).await;
    let mut skus = Vec::new();
    while skus.len() < items {
        skus.push(shop.shop_item(1_000_000, 100).await);
    }
    place_due_orders(&shop, &skus, orders).await;
    shop.add_replica(&[JOBS_ON]);
    let (alice, began) = (shop.sign_in("alice").await, Instant::now());
    let (stop, stopped) = oneshot::channel::<()>();
    let placing = stream::iter((0..).zip(skus.iter().cycle()))
        .take_until(stopped)
        .map(|(n, sku)| shop.order(&alice, n % 2, sku, 1).send())
        .buffer_unordered(CONNECTIONS)
        .fold(0, async |placed, response| {
            assert_eq!(response.unwrap().status(), StatusCode::CREATED);
            placed + 1
        });
    let expiring = async {
        let due = "select count(*) from orders where status = 'pending' and expires_at <= now()";
        until("no due order is left", async || shop.number(due).await == 0).await;
        let _ = stop.send(());
        began.elapsed().as_secs_f64()
    };
    let (placed, seconds) = futures_util::join!(placing, expiring);
    let rate = |orders: usize| orders as f64 / seconds;
    println!("of {items} items {:.0}/s expired, {:.0}/s placed", rate(orders), rate(placed));
    shop.assert_sound().await;
    assert_eq!(shop.expiry_entries().await, orders as i64);
    shop.number("select count(distinct xmin::text) from stock_ledger where reason = 'expiry'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_hot_item_expire_by_hundreds() {
    let transactions = expire(1, 8_000).await;
    println!("{transactions} transactions");
    // Sixteen of 500, and those that begin or end the queue.
    assert!(transactions <= 80, "{transactions} transactions for 8,000 orders");
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_several_items_expire_by_hundreds() {
    let transactions = expire(5, 5_000).await;
    println!("{transactions} transactions");
    assert!(transactions <= 100, "{transactions} transactions for 5,000 orders of 5 items");
}
