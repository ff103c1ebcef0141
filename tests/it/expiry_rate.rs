//! Unpaid orders expire in large transactions, as fast as they are placed.

use std::collections::BTreeSet;
use std::time::Instant;

use holdfast_services::load::{self, LoadClient, LoadPlan, Posts};
use holdfast_testkit::TestShop;

use crate::order_expiry::JOBS_ON;

const CONNECTIONS: usize = 32;

/// Places `orders` orders that are due at once, of the items in turn.
async fn place_due_orders(shop: &TestShop, skus: &[String], orders: usize) {
    let alice = shop.promoted("alice").await;
    let lines = |sku| format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":1}}]}}");
    let bodies: Vec<String> = skus.iter().map(lines).collect();
    let each = (orders / CONNECTIONS) as u64;
    let headers = ["Holdfast-Pay-Within-Ms: 1".to_owned()];
    let client = |n: usize| LoadClient {
        targets: vec![shop.replicas[0].base_url[7..].parse().unwrap()],
        script: Posts::new("/api/orders", &alice.token, &headers, &bodies, n).limit(each),
    };
    let clients = (0..CONNECTIONS).map(client).collect();
    let plan = LoadPlan::new(clients, |status| status == 201);
    let began = Instant::now();
    let report = load::run(plan).await.unwrap();
    assert_eq!(report.expected_total, orders as u64, "{:?}", report.statuses);
    println!("{:.0} orders/s placed", orders as f64 / began.elapsed().as_secs_f64());
}

/// Has `orders` due orders of `items` items expire; returns the number of transactions.
async fn expire(items: usize, orders: usize) -> i64 {
    let mut shop = TestShop::start(1).await;
    let mut skus = BTreeSet::new();
    while skus.len() < items {
        skus.insert(shop.shop_item(orders as i64, 100).await);
    }
    place_due_orders(&shop, &Vec::from_iter(skus), orders).await;
    shop.add_replica(&[JOBS_ON]);
    let began = Instant::now();
    shop.until_no_order_is_pending().await;
    println!("{:.0} orders/s of {items} expired", orders as f64 / began.elapsed().as_secs_f64());
    shop.assert_sound().await;
    assert_eq!(shop.expiry_entries().await, orders as i64);
    shop.number("select count(distinct xmin::text) from stock_ledger where reason = 'expiry'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_hot_item_expire_by_hundreds() {
    let transactions = expire(1, 8_000).await;
    // Sixteen of 500, and those that begin or end the queue.
    assert!(transactions <= 80, "{transactions} transactions for 8,000 orders");
}
