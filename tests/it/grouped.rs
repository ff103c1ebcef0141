//! `batched`: writes of several items that are ready together share a statement.

use futures_util::future::join_all;
use reqwest::{Response, StatusCode};
use sqlx::Executor as _;

use crate::common::{Shop, body, until};
use crate::queue::{answer, send};

const ITEMS: usize = 20;

/// Orders one unit of each item while nobody can write orders, does `meanwhile` in the transaction
/// that keeps them from it once several statements wait, and ends it.
async fn order_together(shop: &Shop, meanwhile: &str) -> Vec<Response> {
    let alice = shop.sign_in("alice").await;
    let mut skus = Vec::new();
    for _ in 0..ITEMS {
        skus.push(shop.shop_item(10, 100).await);
    }
    let mut tx = shop.pool.begin().await.unwrap();
    tx.execute("lock table orders in share mode").await.unwrap();
    let sent: Vec<_> = skus.iter().map(|sku| send(shop.order(&alice, 0, sku, 1))).collect();
    // One by itself, and a group.
    until("a group waits", async || {
        shop.number(
            "select count(*) from pg_locks join pg_database d on d.oid = database
              where not granted and relation = 'orders'::regclass
                and datname = current_database()",
        )
        .await
            >= 2
    })
    .await;
    tx.execute(sqlx::AssertSqlSafe(meanwhile.to_owned())).await.unwrap();
    tx.commit().await.unwrap();
    join_all(sent.into_iter().map(answer)).await
}

async fn assert_all_placed(shop: &Shop, answers: Vec<Response>) {
    for answer in answers {
        body(answer, StatusCode::CREATED).await;
    }
    assert_eq!(shop.number("select count(*) from orders").await, 20);
    assert_eq!(shop.number("select count(*) from stock_ledger where reason = 'order'").await, 20);
    shop.assert_sound().await;
}

#[tokio::test]
async fn orders_for_several_items_share_a_commit() {
    let shop = Shop::start(1).await;
    let answers = order_together(&shop, "select 1").await;
    let commits = shop.number("select count(distinct xmin::text) from orders").await;
    assert!(commits < 20, "{commits} commits");
    assert_all_placed(&shop, answers).await;
}

#[tokio::test]
async fn rows_that_moved_fail_no_order_of_their_group() {
    let shop = Shop::start(1).await;
    let half = "update items set version = version + 1 where sku in
                (select sku from items order by sku limit 10)";
    let answers = order_together(&shop, half).await;
    assert_all_placed(&shop, answers).await;
}
