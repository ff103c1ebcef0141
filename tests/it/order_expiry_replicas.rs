//! Unpaid orders that a replica has begun to expire and cannot: the other replica takes over.

use futures_util::{StreamExt as _, stream};
use holdfast_testkit::proxy;
use holdfast_testkit::{TestShop, until};
use serde_json::json;

use crate::order_expiry::JOBS_ON;

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_postgres_is_replaced() {
    let postgres = proxy::to_postgres().await;
    let mut shop = TestShop::without_replicas().await;
    shop.add_replica(&[JOBS_ON]);
    let through = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    shop.add_replica(&[JOBS_ON, ("DATABASE_URL", &through)]);
    let alice = shop.promoted("alice").await;
    shop.configure_worker(0, json!({ "rest_ms": 30_000 })).await;
    let sku = shop.shop_item(60, 100).await;
    stream::iter(0..60)
        .for_each_concurrent(16, |_| async {
            shop.place_expiring_order(&alice, 0, &sku, 1_500).await;
        })
        .await;
    // The expiry of some orders waits for the item's row, and the others wait for those.
    let mut idle = shop.pool.begin().await.unwrap();
    let lock = "select from items where sku = $1 for update";
    sqlx::query(lock).bind(&sku).execute(&mut *idle).await.unwrap();
    let due = "select count(*) from orders where expires_at > now()";
    until("all are due", async || shop.number(due).await == 0).await;
    let blocked = "select count(*) from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'";
    until("it waits for the row", async || shop.number(blocked).await > 0).await;

    postgres.cut().await;
    idle.rollback().await.unwrap();
    shop.configure_worker(0, json!({ "rest_ms": 0 })).await;
    shop.until_no_order_is_pending().await;
    assert_eq!((shop.expiry_entries().await, shop.stock(&sku).await), (60, 60));
    shop.assert_sound().await;
}
