//! `batched`: writes of several items, or payments of several users, that are ready at the same
//! time share a statement.

use futures_util::future::join_all;
use holdfast_testkit::{Call, Reply, TestShop, until};
use sqlx::Executor as _;

/// Sends requests that all change orders. Table locks make all of them read before one writes:
/// first no key record can be read, then no order can be written. Executes `statement` in the
/// transaction that blocks the writes, once several of them wait, and commits it.
async fn send_together(shop: &TestShop, requests: Vec<Call>, statement: &str) -> Vec<Reply> {
    let expected = requests.len() as i64;
    let mut reads = shop.pool.begin().await.unwrap();
    let mut writes = shop.pool.begin().await.unwrap();
    reads.execute("lock table idempotency in access exclusive mode").await.unwrap();
    writes.execute("lock table orders in share mode").await.unwrap();
    let sent: Vec<_> =
        requests.into_iter().map(|call| tokio::spawn(until_answered(call))).collect();
    until("all wait to read", async || waiting_for(shop, "idempotency").await == expected).await;
    reads.commit().await.unwrap();
    // The first write alone, and then a group.
    until("a group waits", async || waiting_for(shop, "orders").await >= 2).await;
    writes.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
    writes.commit().await.unwrap();
    join_all(sent).await.into_iter().map(Result::unwrap).collect()
}

/// Sends it again, with the same key, while it is not available. A read gives up after two seconds,
/// and on a loaded machine the others may not wait yet.
async fn until_answered(call: Call) -> Reply {
    let mut reply = call.clone().await;
    for _ in 0..20 {
        if reply.status != 503 {
            break;
        }
        reply = call.clone().await;
    }
    reply
}

/// The number of statements that wait for that table.
async fn waiting_for(shop: &TestShop, table: &str) -> i64 {
    let waiting = "select count(*) from pg_locks join pg_database d on d.oid = database
                    where not granted and relation = $1::regclass and datname = current_database()";
    sqlx::query_scalar(waiting).bind(table).fetch_one(&shop.pool).await.unwrap()
}

/// Orders one unit of each of ten items.
async fn order_together(shop: &TestShop, statement: &str) {
    let alice = shop.sign_in("alice").await;
    let mut requests = Vec::new();
    for _ in 0..10 {
        requests.push(alice.orders(&shop.shop_item(10, 100).await, 1));
    }
    for response in send_together(shop, requests, statement).await {
        response.succeeds(201);
    }
    assert_eq!(shop.number("select count(*) from orders").await, 10);
    assert_eq!(shop.number("select count(*) from stock_ledger where reason = 'order'").await, 10);
    shop.assert_sound().await;
}

#[tokio::test]
async fn orders_for_several_items_share_a_commit() {
    let shop = TestShop::start(1).await;
    order_together(&shop, "select 1").await;
    let commits = shop.number("select count(distinct xmin::text) from orders").await;
    assert!(commits < 10, "{commits} commits");
}

#[tokio::test]
async fn moved_rows_fail_no_order_in_group() {
    let shop = TestShop::start(1).await;
    let half = "update items set version = version + 1 where sku in
                (select sku from items order by sku limit 5)";
    order_together(&shop, half).await;
}

#[tokio::test]
async fn payments_of_several_users_share_a_commit() {
    let shop = TestShop::start(1).await;
    let sku = shop.shop_item(10, 100).await;
    let mut payments = Vec::new();
    for name in ["alice", "bob", "carol", "admin"] {
        let user = shop.sign_in(name).await;
        let order = user.orders(&sku, 1).ok().await;
        payments.push(user.pays(&order));
    }
    for response in send_together(&shop, payments, "select 1").await {
        response.succeeds(200);
    }
    assert_eq!(shop.number("select count(*) from orders where status = 'paid'").await, 4);
    let commits = "select count(distinct xmin::text) from balance_ledger where reason = 'payment'";
    let commits = shop.number(commits).await;
    assert!(commits < 4, "{commits} commits");
    shop.assert_sound().await;
}
