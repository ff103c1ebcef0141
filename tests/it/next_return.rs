//! When a reserved unit of a sold out item may return.

use holdfast_shop::Sku;
use holdfast_shop::query::next_return::{self, NextReturn};
use holdfast_testkit::TestShop;
use sqlx::Executor as _;

/// 12,000 orders of bob, of which one is due in each minute from 2100 on.
const OTHER_ORDERS: &str = "
    insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
    select gen_random_uuid(), (select id from users where name = 'bob'), 'cancelled', 0, n::text,
           now(), '2100-01-01Z'::timestamptz + n * interval '1 minute'
      from generate_series(1, 12000) n";

/// The page of a sold out item asks every three seconds: not by the item's lines, of which a hot
/// one has very many, but by the pending orders.
#[tokio::test(flavor = "multi_thread")]
async fn next_return_is_found_by_the_pending_orders() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let pending = alice.orders("last-lantern", 1).ok().await;
    // An item with one line: by its index it is found as fast as by the key.
    shop.pool.execute("analyze order_lines").await.unwrap();
    shop.pool.execute(OTHER_ORDERS).await.unwrap();
    let lines = "insert into order_lines
                     (order_id, sku, quantity, unit_price_cents, name, counts_for, entry_seq)
                 select gen_random_uuid(), sku, 1, 100, 'Goods', user_id, n
                   from generate_series(1, 30000) n,
                        (values ('last-lantern'), ('deadbolt')) as items (sku),
                        (select id as user_id from users where name = 'bob') as users";
    shop.pool.execute(lines).await.unwrap();
    let skus = ["last-lantern", "deadbolt"].map(|sku| Sku::try_from(sku.to_owned()).unwrap());

    let returns = async || {
        let mut tx = shop.pool.begin().await.unwrap();
        tx.execute("set local plan_cache_mode = force_generic_plan").await.unwrap();
        let returns = next_return::next_returns_in(&mut tx, &skus).await.unwrap();
        let read = "select sum(seq_tup_read + idx_tup_fetch)::bigint
                      from pg_stat_xact_user_tables where relname in ('orders', 'order_lines')";
        let read: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
        assert!(read < 20, "{read} rows were read");
        skus.each_ref().map(|sku| returns[sku])
    };
    returns().await;
    shop.pool.execute("analyze orders, order_lines").await.unwrap();
    let found = returns().await;
    assert_eq!(found[1], NextReturn::NoneReserved);
    let NextReturn::At(at) = found[0] else { panic!("{found:?}") };
    let due = "select expires_at from orders where status = 'pending'";
    let due: time::OffsetDateTime = sqlx::query_scalar(due).fetch_one(&shop.pool).await.unwrap();
    assert_eq!(at, due);

    alice.pays(&pending).ok().await;
    assert_eq!(returns().await, [NextReturn::NoneReserved; 2]);
    // Behind 6,000 pending orders of other items it is found, too; behind 10,000 it is unknown.
    shop.execute("update orders set status = 'pending' where status = 'cancelled'").await;
    alice.orders("deadbolt", 1).ok().await;
    let due = "update orders set expires_at = '2100-01-05 04:00:30Z'
                where id in (select order_id from order_lines where sku = 'deadbolt')";
    shop.execute(due).await;
    let db = &mut shop.pool.acquire().await.unwrap();
    let found = next_return::next_returns_in(db, &skus).await.unwrap();
    let due = NextReturn::At(time::macros::datetime!(2100-01-05 4:00:30 UTC));
    assert_eq!(skus.each_ref().map(|sku| found[sku]), [NextReturn::Unknown, due]);
}
